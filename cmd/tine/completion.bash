# Completes tine's commands, and the names of disks, checkpoints and mounts,
# which tine asks from its server. It needs nothing but bash.
_tine() {
    local line=${COMP_LINE:0:COMP_POINT} words=() cur= flag= out directive word
    read -ra words <<<"$line"
    if [[ $line != *[[:space:]] ]]; then
        cur=${words[-1]}
        unset 'words[-1]'
    fi
    out=$("${words[0]}" __completeNoDesc "${words[@]:1}" "$cur" 2>/dev/null) || return
    directive=${out##*:}
    COMPREPLY=()
    # For --flag=value tine answers with values alone.
    [[ $cur == -*=* ]] && flag=${cur%%=*}=
    while IFS= read -r word; do
        word=${word:+$flag$word}
        [[ -n $word && $word == "$cur"* ]] && COMPREPLY+=("$word")
    done <<<"${out%:*}"
    if ((directive & 16)); then
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        compopt -o filenames 2>/dev/null
    elif ((!(directive & 5) && ${#COMPREPLY[@]} == 0)); then
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        compopt -o filenames 2>/dev/null
    fi
    ((directive & 2)) && compopt -o nospace 2>/dev/null
    # Readline replaces only what follows the last of its word breaks, so what
    # stands before must not be given again. An "@" is itself replaced.
    local break prefix=
    for break in @ = :; do
        if [[ $COMP_WORDBREAKS == *"$break"* && $cur == *"$break"* ]]; then
            word=${cur%"${cur##*"$break"}"}
            ((${#word} > ${#prefix})) && prefix=$word
        fi
    done
    prefix=${prefix%@}
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
complete -F _tine tine
