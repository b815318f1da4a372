# apt.sh - packages out of the next suite, or for another architecture, from the mirror that this machine uses. They come by
# lists of their own, so that the machine's apt knows nothing of them. Read by `dev` and by what it runs; needs no root.

apt_llhttp='libllhttp-dev libllhttp9.2' # which Debian 12 lacks: its next suite has them

apt_suite() { # the suite of this machine; of "next", the one after it
    name=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    case "${1:-}$name" in
        nextbookworm) echo trixie ;;
        next*) echo "apt: the suite after '$name' is not known" >&2; return 1 ;;
        *) echo "$name" ;;
    esac
}

# apt_box BOX SUITE ARCH: make the folder BOX an apt that knows SUITE's packages for ARCH and none as installed. Its lists,
# some 9 MB, are fetched.
apt_box() {
    uri=$(apt-get indextargets --format '$(REPO_URI)|$(CODENAME)|$(CREATED_BY)' |
        awk -F'|' -v c="$(apt_suite)" '$2 == c && $3 == "Packages" { print $1; exit }')
    [ -n "$uri" ] || { echo "apt has no source for $(apt_suite): run apt-get update" >&2; return 1; }
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
    : >"$1/status"
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ -f "$key" ]; then by=" [signed-by=$key]"; else by=''; fi
    printf 'deb%s %s %s main\n' "$by" "$uri" "$2" >"$1/sources.list"
    cat >"$1/apt.conf" <<CONF
Dir::Etc::SourceList "$1/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$1/lists";
Dir::State::Status "$1/status";
Dir::Cache "$1/cache";
APT::Sandbox::User "$(id -un)";
APT::Architecture "$3";
APT::Architectures { "$3"; };
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
CONF
    apt_in "$1" -qq update
}

apt_in() ( # apt_in BOX ARGS: apt-get there
    APT_CONFIG=$1/apt.conf
    export APT_CONFIG
    shift
    exec apt-get "$@" </dev/null
)
