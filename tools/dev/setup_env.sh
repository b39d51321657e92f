#!/usr/bin/env bash
# Makes the virtual environment that the `make` targets use, repairs it, or sees at once that it is up
# to date. Its versions are in requirements/environment.txt and requirements/openmmlab.txt; with the
# argument `onedl` in onedl.txt, and the environment is beside the other one, as .venv-onedl: the two
# stacks ship the same modules, so one environment cannot have both.
#
#   VENV=.venv         where it is
#   PYTHON=python3.12  what it is made from: 3.11 or 3.12 (unset: the first of them that is found)
#   JOBS=1             compilers at once while mmcv builds (unset: what cores and memory allow)
#   MMCV_CUDA=1        build mmcv's CUDA operators as well; wants the CUDA toolkit that torch was
#                      built with (unset: CPU operators only, GPU or not)

set -euo pipefail

fail() {
    echo "setup: $*" >&2
    exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$root"
pins=requirements/environment.txt
stack=requirements/${1:-openmmlab}.txt
peft=requirements/peft.txt
mmcv=$(grep '^[a-z-]*mmcv==' "$stack")
disk_gb=8    # the environment (5.5) and, while pip unpacks them, its wheels (1); with some to spare

# Settings of a person's shell that would install elsewhere or import from elsewhere.
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX
export PYTHONNOUSERSITE=1 PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# --- What is there ------------------------------------------------------------------------------

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
    local ours
    ours=$(python_of "$py") && { [ -z "${PYTHON:-}" ] || [ "$ours" = "$(python_of "$PYTHON")" ]; }
}

fingerprint() { # of everything the environment was made from
    {
        echo "$root $venv ${MMCV_CUDA:-}"
        python_of "$py"
        cat $pins "$stack" $peft requirements.txt setup.py mmbixt/version.py
    } | cksum
}

up_to_date() {
    [ -e "$stamp" ] && [ -e mmbixt.egg-info ] && wanted_python &&
        [ "$(fingerprint)" = "$(cat "$stamp")" ]
}

usable() { # whether there is an environment to build on, or one to throw away
    # `unfinished`: something died while pip was writing, and packages may be half there.
    # pyvenv.cfg names the folder: scripts in a moved environment start the wrong Python.
    [ ! -e "$unfinished" ] && wanted_python && "$py" -m pip --version >/dev/null 2>&1 &&
        [ "$(sed -n 's/^command = .* -m venv //p' "$venv/pyvenv.cfg")" = "$venv" ]
}

up_to_date && exit

# --- One at a time ------------------------------------------------------------------------------

# The lock belongs to the open file, so it goes with the last process of a set-up, killed or not.
exec 9>>"$venv/setup.lock"
if ! flock -n 9; then
    echo "setup: another set-up is at work in $VENV; waiting for it"
    flock 9
    up_to_date && exit
fi
: >"$log"

job=
leave() {
    local status=$?
    if [ -n "$job" ]; then
        kill -TERM -- "-$job" 2>/dev/null || true
        wait "$job" 2>/dev/null || true
    fi
    rm -rf "$venv/tmp"
    exit $status
}
trap leave EXIT
trap 'echo "setup: interrupted; run it again to go on" >&2; exit 130' INT TERM HUP

# --- Running a step -----------------------------------------------------------------------------

clock() { printf '%d:%02d' $((SECONDS / 60)) $((SECONDS % 60)); }

step() { # step WHAT COMMAND...: its output goes to the log, and a sign of life to the screen
    local what=$1 status=0 next=$SECONDS compiled
    shift
    printf '\n=== %s: %s\n' "$what" "$*" >>"$log"
    log_start=$(wc -c <"$log")
    mkdir -p "$venv/tmp" # beside the environment: /tmp is often too small for torch
    set -m               # a process group of its own, so that all of it can be ended
    TMPDIR=$venv/tmp "$@" >>"$log" 2>&1 </dev/null &
    job=$!
    set +m
    while kill -0 "$job" 2>/dev/null; do
        compiled=$(tail -c "+$log_start" "$log" | grep -aoE '\[[0-9]+/[0-9]+\]' | tail -n 1 || true)
        if [ -t 1 ]; then
            printf '\r  %s %s%s' "$(clock)" "$what" "${compiled:+ $compiled}"
        elif [ $SECONDS -ge $next ]; then
            echo "  $(clock) $what${compiled:+ $compiled}"
            next=$((next + 30))
        fi
        sleep 1
    done
    wait "$job" || status=$?
    job=
    [ ! -t 1 ] || printf '\r\033[K  %s %s\n' "$(clock)" "$what"
    return $status
}

explain() { # why the last step failed, in one line
    local said
    said=$(tail -c "+$((log_start + 1))" "$log")
    has() { grep -qaE "$1" <<<"$said"; }
    if has 'No space left on device'; then
        echo "the disk is full; free about $disk_gb GB"
    elif has 'ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|NameResolution'; then
        echo 'pip cannot reach its package index; check the network, the proxy and PIP_INDEX_URL'
    elif has 'No matching distribution found'; then
        echo "the package index has no $(sed -n 's/.*No matching distribution found for //p' \
            <<<"$said" | head -n 1) for this Python and machine"
    elif has 'Killed signal|signal 9'; then
        echo 'a compiler was killed, probably for want of memory; try: make setup JOBS=1'
    else
        grep -aE 'rror: ' <<<"$said" | grep -av 'subprocess-exited' | tail -n 1 |
            sed 's/^ *//' | grep . || echo 'failed'
    fi
}

give_up() { fail "$1: $(explain) (log: $log)"; }

install() { # install WHAT PIP-ARGUMENTS...
    local what=$1
    shift
    touch "$unfinished"
    step "$what" "$py" -m pip install "$@" || give_up "$what"
    rm "$unfinished"
}

imports() { # imports MODULE...: whether they can be imported
    "$py" - "$@" <<'CODE' || exit
import sys
from importlib import import_module

for name in sys.argv[1:]:
    try:
        import_module(name)
    except Exception as error:
        hint = ''
        if 'cannot open shared object file' in str(error):
            hint = '; install the package of that library (Debian, Ubuntu: libgl1, libglib2.0-0)'
        sys.exit(f'setup: `import {name}` fails: {error}{hint}')
CODE
}

# --- The Python to build on ---------------------------------------------------------------------

supported() { [[ $1 == 3.11.* || $1 == 3.12.* ]]; }

find_python() {
    local name version seen=
    for name in ${PYTHON:+"$PYTHON"} ${PYTHON:-python3.11 python3.12 python3}; do
        version=$(python_of "$name") || continue
        supported "$version" && echo "$name" && return
        seen=" ($name is ${version%% *})"
    done
    if [ -z "${PYTHON:-}" ]; then
        fail "no Python 3.11 or 3.12 found$seen; install one or name it: make PYTHON=python3.11 ..."
    elif [ -z "$seen" ]; then
        fail "PYTHON=$PYTHON does not run; name a Python 3.11 or 3.12: make PYTHON=python3.11 ..."
    fi
    fail "Python 3.11 or 3.12 is needed$seen; name another: make PYTHON=python3.11 ..."
}

make_venv() {
    local python version free
    python=$(find_python)
    version=$(python_of "$python")
    version=${version%.* *}
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv module; install it (Debian, Ubuntu:" \
            "apt install python$version-venv)"
    echo "setup: a new environment in $VENV with Python $version: 3 GB to fetch, 6 GB to keep"
    touch "$unfinished"
    rm -f "$stamp"
    [ ! -e "$venv/bin" ] || step 'removing the old one' \
        find "$venv" -mindepth 1 -maxdepth 1 ! -name 'setup.*' -exec rm -rf {} +
    free=$(df -Pk "$venv" | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
    [ "$free" -ge $disk_gb ] ||
        fail "$free GB free in $VENV, about $disk_gb GB needed; make space or name another:" \
            "make VENV=..."
    step 'virtual environment' "$python" -m venv "$venv" || give_up 'virtual environment'
}

# --- mmcv, the one package that is compiled -----------------------------------------------------

mmcv_works() { # its operators, too: a wheel in pip's cache may be of another torch
    "$py" - >/dev/null 2>&1 <<CODE
from importlib.metadata import version
assert version('${mmcv%==*}') == '${mmcv#*==}'
import torch
from mmcv.ops import nms
nms(torch.rand(2, 4), torch.rand(2), 0.5)
CODE
}

mmcv_is_cached() {
    local tag wheel=${mmcv/==/-}
    [ -z "${MMCV_CUDA:-}" ] &&
        tag=$("$py" -c 'import sys; print("cp%d%d" % sys.version_info[:2])') &&
        "$py" -m pip cache list "${wheel/-mm/_mm}-$tag" --format=abspath 2>/dev/null | grep -q .
}

need_compiler() {
    local headers
    command -v "${CXX:-c++}" >/dev/null ||
        fail 'no C++ compiler, and mmcv has to be compiled; install one (Debian, Ubuntu:' \
            'apt install g++)'
    headers=$("$py" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -e "$headers/Python.h" ] ||
        fail "Python.h is missing, and mmcv has to be compiled; install it (Debian, Ubuntu:" \
            "apt install $(basename "$headers")-dev)"
}

compilers() { # one per core, and 2 GB of memory for each
    local cores memory
    cores=$(getconf _NPROCESSORS_ONLN)
    memory=$(awk '/MemAvailable/ { print int($2 / 2 / 1024 / 1024) }' /proc/meminfo)
    echo "${JOBS:-$((memory < 1 ? 1 : memory < cores ? memory : cores))}"
}

build_mmcv() { # build_mmcv PIP-ARGUMENTS...
    # Without a visible GPU, or mmcv's setup.py builds for CUDA whatever FORCE_CUDA says.
    local what=${mmcv/==/ } for_gpu=(FORCE_CUDA=0 CUDA_VISIBLE_DEVICES=)
    [ -z "${MMCV_CUDA:-}" ] || for_gpu=(FORCE_CUDA=1)
    step "$what" env MMCV_WITH_OPS=1 "MAX_JOBS=$(compilers)" "${for_gpu[@]}" "$py" -m pip wheel -v \
        --no-build-isolation --no-deps "$@" -w "$venv/tmp" "$mmcv" || give_up "$what"
    install "$what" --no-deps --force-reinstall "$venv/tmp/"*mmcv-*.whl
}

# --- All of it ----------------------------------------------------------------------------------

if usable; then
    echo "setup: bringing $VENV up to date"
else
    make_venv
fi
compile=
if ! mmcv_works && ! mmcv_is_cached; then
    need_compiler
    compile=yes
fi

rm -f "$stamp"
install 'build tools' --retries 2 --timeout 20 -c $pins pip setuptools wheel ninja
install 'torch and torchvision' -c $pins torch torchvision
install 'everything else' --no-deps -r $pins -r <(grep -v "$mmcv" "$stack")
install 'peft, for a test' --no-deps --upgrade --target "$venv/peft" -r $peft
imports torch torchvision cv2 timm mmengine
if ! mmcv_works; then
    [ -z "$compile" ] || echo 'setup: mmcv is compiled now; once, about ten minutes on two cores'
    build_mmcv ${MMCV_CUDA:+--no-cache-dir}
    mmcv_works || build_mmcv --no-cache-dir
fi

# As `pip install -e` did before it put metadata in site-packages: there, mim and mmengine would
# look for mmbixt/.mim beside the metadata instead of in the checkout.
"$py" setup.py -q egg_info 2>>"$log" >&2 || fail "setup.py failed (log: $log)"
echo "$root" >"$("$py" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mmbixt.pth"

imports mmcv._ext mmseg.models mmdet.models mmpretrain.models mmbixt
fingerprint >"$stamp"
echo "setup: done in $(clock)"
