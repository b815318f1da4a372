# Run beside systemd in the booted root: a user's service from its installation to its end. Each step prints
# `== NAME`, what it said, and `-- status`; test_package.py looks at them.
step() {
    printf '== %s\n' "$1"
    shift
    "$@" 2>&1
    printf -- '-- %s\n' $?
}
user() { setpriv --reuid 1000 --regid 1000 --init-groups env HOME=/home/u USER=u XDG_RUNTIME_DIR=/run/user/1000 "$@"; }
until_true() { # until_true COMMAND...: a minute at most
    i=0
    until "$@" >/dev/null 2>&1; do
        i=$((i + 1))
        [ $i -lt 600 ] || return 1
        sleep 0.1
    done
}
main_pid() { user systemctl --user show aned.service --property MainPID --value; }
crash() {
    old=$(main_pid)
    kill -SEGV "$old"
    until_true sh -c "p=\$(setpriv --reuid 1000 --regid 1000 --init-groups env XDG_RUNTIME_DIR=/run/user/1000 \
        systemctl --user show aned.service --property MainPID --value); [ \"\$p\" != $old ] && [ \"\$p\" != 0 ]"
}
conf=/home/u/.local/share/aned/aned.conf
options() {
    printf '[limits]\nqueue = %s\n' "$1" >"$conf"
    chown u:u "$conf"
}

until_true test -S /run/dbus/system_bus_socket
step boot systemctl is-system-running --wait
step linger loginctl enable-linger u
until_true user systemctl --user is-system-running
step units user systemd-analyze --user --man=no verify /usr/lib/systemd/user/aned.service /usr/lib/systemd/user/aned.socket
step before user anectl service status --json
step install user anectl service install --no-wait
step listening user anectl service status --json
# the socket alone: this client starts the daemon
step convert user anectl convert /home/u/aned-demo.gguf --name demo --context 256
step run user anectl run demo "What is aned?" --temperature 0
step running user anectl service status --json
step again user anectl service install
step logs user anectl service logs -n 200
step doctor user anectl doctor --json
options 7
step reload user anectl service reload --json
options 0
step wrong-reload user anectl service reload
step wrong-restart user anectl service restart
step trouble user anectl service status --json
step trouble-doctor user anectl doctor --json
options 9
step mended user anectl service reload --json
step crash crash
step crashed user anectl service status --json
step run-again user anectl run demo "What is aned?" --temperature 0
step stop user anectl service stop
step stopped user anectl service status --json
step start user anectl service start
step security user systemd-analyze --user security --no-pager aned.service
step uninstall user anectl service uninstall
step gone user anectl service status --json
step home user find /home/u/.local/share/aned -maxdepth 2
systemctl poweroff
