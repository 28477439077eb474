# Completion of sessiontree and stree for fish. Install: sessiontree completion fish >~/.config/fish/completions/sessiontree.fish

function __sessiontree_complete
    set -l token (commandline -ct)
    set -l plain (string unescape -- $token 2>/dev/null)
    or set plain (string trim -l -c '\'"' -- $token)
    set -l lines (printf '%s\0' (commandline -opc)[2..] "$plain" | command sessiontree completion --complete plain 2>/dev/null)
    if test (count $lines) -gt 1
        printf '%s\n' $lines[2..]
        return
    end
    set -l head (string match -r -- '^--[^=]*=' $plain)
    set -l path (string sub -s (math (string length -- "$head") + 1) -- "$plain")
    set -l found
    switch "$lines[1]"
        case files
            set found (__fish_complete_path $path)
        case folders
            set found (__fish_complete_directories $path '')
    end
    for one in $found
        printf '%s%s\n' "$head" $one
    end
end

complete -c sessiontree -f -k -a '(__sessiontree_complete)'
complete -c stree -w sessiontree
