#compdef sessiontree stree
# Completion of sessiontree and stree for zsh. Install, behind compinit: eval "$(sessiontree completion zsh)"

_sessiontree() {
    local answer line fallback
    local -a before lines found shown
    before=("${(@Q)words[2,CURRENT-1]}")
    answer="$(printf '%s\0' "${before[@]}" "${(Q)PREFIX}" | command sessiontree completion --complete plain 2>/dev/null)" || return 1
    lines=("${(@f)answer}")
    fallback=$lines[1]

    for line in "${(@)lines[2,-1]}"; do
        found+=("${line%%$'\t'*}")
        [[ $line == *$'\t'* ]] && line="${line%%$'\t'*}  -- ${line#*$'\t'}"
        shown+=("${(mr:COLUMNS-1:)line}")
    done

    if (( $#found )); then
        compadd -V sessiontree -l -d shown -a found
        return
    fi
    compset -P '--*='
    case $fallback in
        files) _files ;;
        folders) _files -/ ;;
        *) return 1 ;;
    esac
}

if [[ ${funcstack[1]} == _sessiontree ]]; then
    _sessiontree "$@"
elif (( $+functions[compdef] )); then
    compdef _sessiontree sessiontree stree
else
    print -u2 'sessiontree: completion needs compinit first: autoload -Uz compinit && compinit'
fi
