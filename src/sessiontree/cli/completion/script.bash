# Completion of sessiontree and stree for bash 4.3 or newer. Install: eval "$(sessiontree completion bash)"

_sessiontree() {
    local IFS=$' \t\n' rest=${COMP_LINE:0:COMP_POINT} blank word answer fallback said breaks quote="" head=""
    local -a words=()

    # Bash splits words at : and =, too. What stands together on the line is put together again.
    for word in "${COMP_WORDS[@]:0:COMP_CWORD}" ''; do
        blank=${rest%%[![:space:]]*}
        rest=${rest#"$blank"}
        [[ -n $word ]] || word=$rest
        if [[ -n $blank || ${#words[@]} -eq 0 ]]; then
            words+=("$word")
        else
            words[-1]+=$word
        fi
        rest=${rest#"$word"}
    done

    COMPREPLY=()
    answer=$(printf '%s\0' "${words[@]:1}" | command sessiontree completion --complete quoted 2>/dev/null) || return 0
    fallback=${answer%%$'\n'*}

    # Readline replaces only what follows the last : or =, so that part alone is given back.
    word=${words[-1]}
    breaks=${COMP_WORDBREAKS//[^:=]/}
    [[ $word == [\"\']* ]] && quote=${word:0:1} breaks=''
    [[ -n $breaks && $word == *["$breaks"]* ]] && head=${word%"${word##*["$breaks"]}"}

    [[ $answer == *$'\n'* ]] && answer=${answer#*$'\n'} || answer=''
    while IFS=$'\t' read -r word said; do
        [[ -n $word ]] || continue
        case $quote in
            '') printf -v word %q "$word" ;;
            \") [[ $word == *[\"\\\$\`!]* ]] && continue ;;
            \') [[ $word == *\'* ]] && continue ;;
        esac
        COMPREPLY+=("${word#"$head"}")
    done <<<"$answer"

    compopt -o nosort 2>/dev/null
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        case $fallback in
            files) compopt -o default 2>/dev/null ;;
            folders) compopt -o dirnames 2>/dev/null ;;
        esac
    fi
    return 0
}

complete -F _sessiontree sessiontree stree
