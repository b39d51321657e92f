#!/usr/bin/env bash
# Makes the virtual environment that the `make` targets use, repairs it, or finds that it is
# up to date. What it installs is in requirements/; with the argument `onedl` the OneDL fork, into
# .venv-onedl: the two stacks have the same module names, so one environment cannot have both.
#
#   VENV=.venv         where it is
#   PYTHON=python3.12  the Python to use: 3.11 or 3.12 (unset: the first of them that is found)
#   JOBS=1             compilers at once while mmcv builds (unset: what cores and memory allow)
#   MMCV_CUDA=1        build mmcv's CUDA operators as well; needs the CUDA toolkit that torch was
#                      built with (unset: CPU operators only, GPU or not)

set -euo pipefail
fail() {
    echo "setup: $*" >&2
    exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$root"
stack=requirements/locked/${1:-openmmlab}.txt
mmcv=$(grep -o '^[a-z-]*mmcv==[0-9.]*' "$stack")
disk_gb=8 # the environment (5.5) and, while pip unpacks them, its wheels (1); and a reserve

# Settings of the user's shell that would change where packages are installed or imported.
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX
export PYTHONNOUSERSITE=1 PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1

VENV=${VENV:-.venv}
VENV=${VENV%/}${1:+-$1}
[ ! -e "$VENV" ] || [ -e "$VENV/setup.lock" ] || [ -z "$(ls -A "$VENV" 2>&1)" ] ||
    fail "$VENV was not made by this script; delete it or name another place: make VENV=..."
mkdir -p "$VENV" 2>/dev/null || fail "cannot make the folder $VENV; name another: make VENV=..."
venv=$(cd "$VENV" && pwd -P)
py=$venv/bin/python log=$venv/setup.log stamp=$venv/setup.stamp unfinished=$venv/setup.unfinished

python_of() { # version and home of an interpreter; nothing if it does not run
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3], sys.base_prefix)' 2>/dev/null
}

wanted_python() { # whether the environment's Python runs and is the one asked for, if one is
    ours=$(python_of "$py") && { [ -z "${PYTHON:-}" ] || [ "$ours" = "$(python_of "$PYTHON")" ]; }
}

fingerprint() { # of everything the environment was made from
    { echo "$root $venv ${MMCV_CUDA:-}" && python_of "$py" && cat requirements/{,locked/}*.txt \
        requirements.txt setup.py mmbixt/version.py; } | cksum
}

up_to_date() {
    [ -e mmbixt.egg-info ] && wanted_python && [ "$(fingerprint)" = "$(cat "$stamp" 2>&1)" ]
}

usable() { # whether the existing environment can be repaired; otherwise it is removed
    # `unfinished`: pip was interrupted while it was writing, and packages may be incomplete.
    # pyvenv.cfg names the folder: scripts in a moved environment start the wrong Python.
    [ ! -e "$unfinished" ] && wanted_python && "$py" -m pip --version >/dev/null 2>&1 &&
        [ "$(sed -n 's/^command = .* -m venv //p' "$venv/pyvenv.cfg")" = "$venv" ]
}

up_to_date && exit
# The lock belongs to the open file, so the end of the last process of a set-up releases it.
exec 9>>"$venv/setup.lock"
if ! flock -n 9; then
    echo "setup: another set-up is running in $VENV; waiting for it"
    flock 9
    up_to_date && exit
fi

: >"$log"
job=
leave() { # end all processes
    [ -z "$job" ] || { kill -- "-$job" && wait "$job"; } 2>/dev/null || true
    rm -rf "$venv/tmp"
}
trap leave EXIT
trap 'echo "setup: interrupted; run it again to continue" >&2; exit 130' INT TERM HUP

clock() { printf '%d:%02d' $((SECONDS / 60)) $((SECONDS % 60)); }
said() { tail -c "+$start" "$log"; } # output of the last step

step() { # step WHAT COMMAND...: its output goes to the log, and progress to the screen
    local next=0 every=30 end='\n' status=0
    [ ! -t 1 ] || every=1 end='\r'
    printf '\n=== %s\n' "$*" >>"$log"
    start=$(wc -c <"$log")
    mkdir -p "$venv/tmp" # in the environment: /tmp is often too small for torch
    set -m               # a process group of its own, so that all of it can be ended
    TMPDIR=$venv/tmp "${@:2}" >>"$log" 2>&1 </dev/null &
    job=$!
    set +m
    while kill -0 "$job" 2>/dev/null; do
        if [ $SECONDS -ge $next ]; then # with the number of files that mmcv has compiled
            printf "  $(clock) $1 $(said | grep -aoE '\[[0-9]+/[0-9]+\]' | tail -n 1)$end"
            next=$((SECONDS + every))
        fi
        sleep 1
    done
    wait "$job" || status=$?
    job=
    [ ! -t 1 ] || echo
    [ $status = 0 ] && return
    [ $status -gt 128 ] || rm -f "$unfinished" # pip was not killed, and has cleaned up
    fail "$1: $(explain) (log: $log)"
}

explain() { # why the last step failed, in one line
    case $(said | tr -d '\0') in
    *'No space left on device'*) echo "the disk is full; free about $disk_gb GB" ;;
    *ConnectionError* | *ConnectTimeout* | *ReadTimeout* | *ProxyError* | *SSLError* | *NameResol*)
        echo 'pip cannot reach its package index; check the network, the proxy and PIP_INDEX_URL' ;;
    *'No matching distribution found for '*)
        echo "the package index has no $(said | sed -n 's/.*No matching .* found for //p' |
            head -n 1) for this Python and machine" ;;
    *'DO NOT MATCH THE HASHES'*)
        echo "$(said | grep -A1 HASHES | tail -n 1 | awk '{print $1}') has another hash than in" \
            'requirements/locked/ (after a change of pins: make lock)' ;;
    *'Killed signal'* | *'signal 9'*)
        echo 'a compiler was killed, probably because memory was exhausted; try: make setup JOBS=1' ;;
    *) said | grep -a 'rror: ' | grep -av subprocess-exited | tail -n 1 | grep . || echo failed ;;
    esac
}

install() { # install WHAT PIP-ARGUMENTS...
    touch "$unfinished"
    step "$1" "$py" -m pip install "${@:2}"
    rm "$unfinished"
}

imports() { # imports MODULES
    "$py" -c "import $1" 2>>"$log" || fail "\`import $1\` fails: $(tail -n 1 "$log") (log: $log)"
}

find_python() {
    local name version seen= how='make PYTHON=python3.11 ...' names=("${PYTHON:-}")
    [ "${PYTHON:-}" ] || names=(python3.11 python3.12 python3)
    for name in "${names[@]}"; do
        version=$(python_of "$name") || continue
        [[ $version != 3.1[12].* ]] || { echo "$name"; exit; }
        seen=" ($name is ${version%% *})"
    done
    [ "${PYTHON:-}" ] || fail "no Python 3.11 or 3.12 found$seen; install one or name it: $how"
    [ "$seen" ] || fail "PYTHON=$PYTHON does not run; name a Python 3.11 or 3.12: $how"
    fail "Python 3.11 or 3.12 is needed$seen; name another: $how"
}

make_venv() {
    local python version free
    python=$(find_python)
    version=$(python_of "$python" | cut -d . -f 1,2)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv module; install it (Debian, Ubuntu: apt install" \
            "python$version-venv)"
    echo "setup: a new environment in $VENV with Python $version: 3 GB of downloads, 6 GB on disk"
    touch "$unfinished"
    [ ! -e "$venv/bin" ] || step 'removing the old one' \
        find "$venv" -mindepth 1 -maxdepth 1 ! -name 'setup.*' -exec rm -rf {} +
    free=$(df -Pk "$venv" | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
    [ "$free" -ge $disk_gb ] || fail "$free GB free in $VENV, about $disk_gb GB needed;" \
        'make space or name another: make VENV=...'
    step 'virtual environment' "$python" -m venv "$venv"
}

mmcv_works() { # also its operators: a wheel in pip's cache may be for another torch
    "$py" - >/dev/null 2>&1 <<CODE
import torch
from mmcv.ops import get_compiling_cuda_version, nms
nms(torch.rand(2, 4), torch.rand(2), 0.5)
assert not '${MMCV_CUDA:-}' or get_compiling_cuda_version() != 'not available'
CODE
}

need_compiler() { # unless pip's cache has a wheel of mmcv
    local wheel=${mmcv%==*} headers install='and mmcv has to be compiled; install it'
    install+=' (Debian, Ubuntu: apt install'
    [ -z "${MMCV_CUDA:-}" ] && "$py" -m pip cache list "${wheel/-/_}" 2>&1 | grep -q whl && return
    command -v "${CXX:-c++}" >/dev/null || fail "no C++ compiler, $install g++)"
    headers=$("$py" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -e "$headers/Python.h" ] || fail "Python.h is missing, $install ${headers##*/}-dev)"
    echo 'setup: mmcv will be compiled; once, about ten minutes on two cores'
}

install_mmcv() { # with its requirements; a compiler per core, and 2 GB of memory for each
    local cores memory wheels=$venv/tmp/wheels
    cores=$(getconf _NPROCESSORS_ONLN)
    memory=$(awk '/MemAvailable/ { print int($2 / 2 / 1024 / 1024) }' /proc/meminfo)
    export MMCV_WITH_OPS=1 MAX_JOBS=${JOBS:-$((memory < 1 ? 1 : memory < cores ? memory : cores))}
    # Hide GPUs: with a visible GPU, mmcv's setup.py builds for CUDA and ignores FORCE_CUDA.
    [ "${MMCV_CUDA:-}" ] && export FORCE_CUDA=1 || export FORCE_CUDA=0 CUDA_VISIBLE_DEVICES=
    step "${mmcv/==/ }" "$py" -m pip wheel "$@" -v --no-deps --no-build-isolation -r "$stack" \
        -w "$wheels"
    install "${mmcv/==/ }" --no-deps --force-reinstall "$wheels"/*.whl
}

if usable; then
    echo "setup: bringing $VENV up to date"
else
    make_venv
fi
rm -f "$stamp"
mmcv_works || need_compiler
install 'packages' --retries 2 --timeout 20 --no-deps -r requirements/locked/environment.txt
install 'torch and torchvision' -c requirements/environment.txt torch torchvision
imports 'torch, torchvision, cv2, timm'
mmcv_works || install_mmcv ${MMCV_CUDA:+--no-cache-dir}
mmcv_works || install_mmcv --no-cache-dir
install 'mmengine, mmsegmentation, ...' --no-deps -r "$stack"
install 'peft, for a test' --no-deps --upgrade --target "$venv/peft" -r requirements/locked/peft.txt

# As `pip install -e` did before it put metadata in site-packages: there, mim and mmengine would
# look for mmbixt/.mim beside the metadata instead of in the checkout.
"$py" setup.py -q egg_info 2>>"$log" >&2 || fail "setup.py failed (log: $log)"
echo "$root" >"$("$py" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mmbixt.pth"

imports 'mmcv._ext, mmseg.models, mmdet.models, mmpretrain.models, mmbixt'
fingerprint >"$stamp"
echo "setup: done in $(clock)"
