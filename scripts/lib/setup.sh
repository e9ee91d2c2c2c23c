# Sourced by the scripts: prepares the machine for the project; quick if it is already prepared. Bash 3.2 is enough.
#
#   setup         Java 17 or newer, then the Python environment .venv; exports what Spark's processes need
#   setup_python  only the Python environment
#   setup_browser a Chromium, for tests, if it is available
#   setup_languages Node, Go and Java with their builders, for tests of clients in other languages
#   setup_compiler a C compiler, for tests that intercept the disk operations of a process
#
# A script that is called with -h or --help prints the comment on top of it and ends, before anything is installed.
#
# Environment: PYTHON names the interpreter to build .venv with (default: the first suitable one on PATH).

if ! root=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd); then
    exit 1
fi
readonly root venv="$root/.venv" pins="$root/conf/constraints.txt"
readonly oldest_java=17 oldest_python=11 newest_python=14 # Python's are the minor versions that the pins cover

say() { printf '== %s\n' "$*" >&2; }

die() {
    printf 'error: %s\n' "$1" >&2
    shift
    if [ $# -gt 0 ]; then printf '       %s\n' "$@" >&2; fi
    exit 1
}

for argument; do
    case "$argument" in
        -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    esac
done

# Runs a command silently; prints its output only if it fails.
quietly() {
    local output
    if ! output=$("$@" 2>&1 </dev/null); then
        printf '%s\n' "$output" >&2
        die "this failed: $*"
    fi
}

# --- packages of the system -----------------------------------------------------------------------------------------

can_apt() { [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null 2>&1; }

apt_updated=
apt_update() {
    # A broken package source of another project must not stop this; if it is needed, the installation fails with a message.
    if [ -z "$apt_updated" ]; then
        apt-get update -q >/dev/null 2>&1 </dev/null || true
        apt_updated=yes
    fi
}

apt_install() {
    say "installing the package $1 with apt-get"
    quietly env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$1"
}

# --- Java -----------------------------------------------------------------------------------------------------------

# Prints the major version of a java command: 8 for "1.8.0_392", 17 for "17.0.15"; nothing when it does not run.
java_major() {
    "$1" -version 2>&1 </dev/null | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p'
}

java_fits() {
    local major
    command -v "$1" >/dev/null 2>&1 || return 1
    major=$(java_major "$1")
    [ -n "$major" ] && [ "$major" -ge "$oldest_java" ]
}

# Leaves JAVA_HOME as Spark needs it: Spark takes $JAVA_HOME/bin/java, without JAVA_HOME the java on PATH.
find_java() {
    local java
    if [ -n "${JAVA_HOME:-}" ]; then
        if java_fits "$JAVA_HOME/bin/java"; then return 0; fi
        say "JAVA_HOME has no Java $oldest_java or newer; looking elsewhere"
        unset JAVA_HOME
    fi
    if java_fits java; then return 0; fi
    for java in /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java; do
        if java_fits "$java"; then
            JAVA_HOME=$(dirname -- "$(dirname -- "$java")")
            export JAVA_HOME
            return 0
        fi
    done
    return 1
}

install_java() {
    local package policy
    can_apt || return 1
    say "no Java $oldest_java or newer, which Spark needs"
    apt_update
    for package in openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless default-jre-headless; do
        # "show" answers for a purely virtual package too, so ask for a version that can be installed.
        policy=$(apt-cache policy "$package" 2>/dev/null)
        case "$policy" in
            *"Candidate: "[0-9]*) apt_install "$package"; return 0 ;;
        esac
    done
    return 1
}

setup_java() {
    if find_java; then return 0; fi
    if install_java && find_java; then return 0; fi
    die "Spark needs Java $oldest_java or newer, and there is none in JAVA_HOME or on PATH. Install it:" \
        "Debian, Ubuntu:  apt-get install openjdk-17-jre-headless   (as root, or run this script as root)" \
        "Fedora, RHEL:    dnf install java-21-openjdk-headless" \
        "Arch:            pacman -S jre17-openjdk-headless" \
        "Alpine:          apk add openjdk17-jre-headless" \
        "macOS:           brew install openjdk@17"
}

# --- a browser ------------------------------------------------------------------------------------------------------

# For the tests of a door's page, which are skipped if no browser is installed and none can be.
setup_browser() {
    if command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1; then return 0; fi
    if can_apt; then
        apt_update
        case "$(apt-cache policy chromium 2>/dev/null)" in # Ubuntu has it as a snap only
            *"Candidate: "[0-9]*) apt_install chromium; return 0 ;;
        esac
    fi
    say "no chromium: the tests of a door's page are skipped"
}

# --- other languages ------------------------------------------------------------------------------------------------

# For the clients in docs/clients, which the tests build and run.
setup_languages() {
    local pair package missing=()
    for pair in npm:npm go:golang-go mvn:maven javac:default-jdk-headless; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair#*:}")
    done
    if [ ${#missing[@]} = 0 ]; then return 0; fi
    if can_apt; then
        apt_update
        for package in "${missing[@]}"; do apt_install "$package"; done
    else
        say "the tests of docs/clients need these packages: ${missing[*]}"
    fi
}

# --- a C compiler ---------------------------------------------------------------------------------------------------

has_compiler() { command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1; }

setup_compiler() {
    if has_compiler; then return 0; fi
    if can_apt; then
        apt_update
        apt_install gcc
        apt_install libc6-dev
    fi
    if ! has_compiler; then
        die "a C compiler is needed for the library that tests put between a broker and its disk. Install one:" \
            "Debian, Ubuntu:  apt-get install gcc libc6-dev   (as root, or run this script as root)" \
            "Fedora, RHEL:    dnf install gcc glibc-devel" \
            "Arch:            pacman -S gcc" \
            "Alpine:          apk add gcc musl-dev"
    fi
}

# --- Python ---------------------------------------------------------------------------------------------------------

python_fits() {
    "$1" -c "import sys; sys.exit(not (3, $oldest_python) <= sys.version_info[:2] <= (3, $newest_python))" \
        >/dev/null 2>&1 </dev/null
}

# Prints the command of the first suitable Python.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if python_fits "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# venv is a package of its own on Debian and Ubuntu.
require_venv_module() {
    local python=$1 package
    if "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then return 0; fi
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if can_apt; then
        apt_update
        apt_install "$package"
    fi
    if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        die "this Python has no venv module. Install it:" \
            "Debian, Ubuntu:  apt-get install $package   (as root, or run this script as root)" \
            "elsewhere:       the full Python package of the system, or set PYTHON to another interpreter"
    fi
}

# What .venv was made from. It changes with anything that makes the environment out of date, the place included,
# because an environment cannot be moved.
stamp() {
    printf '%s\n' "$root" "$("$venv/bin/python" -V 2>&1)"
    cksum <"$pins"
    cksum <"$root/pyproject.toml"
}

is_current() {
    [ -x "$venv/bin/python" ] && [ -f "$venv/stamp" ] && [ "$(stamp)" = "$(cat "$venv/stamp")" ]
}

build_environment() {
    local python
    if is_current; then return 0; fi # another run may have done it while this one waited
    if ! python=$(find_python); then
        die "Python 3.$oldest_python to 3.$newest_python is needed, and there is none on PATH. Install one:" \
            "Debian, Ubuntu:  apt-get install python3 python3-venv" \
            "Fedora, RHEL:    dnf install python3.12" \
            "macOS:           brew install python@3.12" \
            "or set PYTHON to an interpreter that is somewhere else"
    fi
    require_venv_module "$python"

    rm -f "$venv/stamp"
    if ! python_fits "$venv/bin/python" || ! grep -qsxF "$root" "$venv/place"; then
        say "making .venv with $("$python" -V 2>&1)"
        quietly "$python" -m venv --clear "$venv"
        printf '%s\n' "$root" >"$venv/place"
        say "installing the pinned packages into .venv (takes some minutes: Spark is 450 MB)"
    else
        say "bringing .venv up to date with pyproject.toml and conf/constraints.txt"
    fi
    # PySpark comes as sources. setuptools goes first, so that the build uses the pinned one and not one fetched for it.
    awk '/^[^ ]/ { wanted = /^setuptools==/ } wanted' "$pins" >"$venv/setuptools.txt"
    quietly "$venv/bin/python" -m pip install --quiet --require-hashes -r "$venv/setuptools.txt"
    quietly "$venv/bin/python" -m pip install --quiet --require-hashes --use-pep517 --no-build-isolation -r "$pins"
    quietly "$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation -e "$root"
    stamp >"$venv/stamp"
    say "ready"
}

setup_python() {
    if is_current; then return 0; fi
    (
        # One builder at a time, where there is flock. The lock is on the project's directory, so it leaves no file.
        if command -v flock >/dev/null 2>&1 && ! flock -n 9; then
            say "waiting for another run that is making .venv"
            flock 9
        fi
        build_environment
    ) 9<"$root" || exit 1
}

setup() {
    setup_java
    setup_python
    unset SPARK_HOME # another Spark of this machine; ours is the one in .venv
    export PYSPARK_PYTHON="$venv/bin/python" PYSPARK_DRIVER_PYTHON="$venv/bin/python"
    export SPARK_CONF_DIR="${SPARK_CONF_DIR:-$root/conf}"
    export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}" # a host name that does not resolve is not an error then
}
