#!/usr/bin/env bash
# Makes the virtual environment that the `make` targets use, or sees that it is up to date. After a
# change or an interruption it is made anew, from what uv has downloaded and the wheel of mmcv that
# was built. With the argument `onedl`: the OneDL fork, into .venv-onedl, since the two stacks have
# the same module names and one environment cannot have both.
#
#   VENV=.venv         where it is
#   PYTHON=python3.12  the Python to use: 3.11 or 3.12 (unset: the first of them that is found)
#   JOBS=1             compilers at once while mmcv builds (unset: what cores and memory allow)
#   MMCV_CUDA=1        build mmcv's CUDA operators as well; needs the CUDA toolkit that torch was
#                      built with (unset: CPU operators only, GPU or not)
#   UV_...             uv's own: UV_TORCH_BACKEND=cpu installs torch without CUDA, UV_DEFAULT_INDEX
#                      names a mirror (uv does not read pip's settings)

set -euo pipefail
fail() {
    echo "setup: $*" >&2
    exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$root"
unset PYTHONHOME PYTHONPATH
venv=$(realpath -m "${VENV:-.venv}${1:+-$1}")
py=$venv/bin/python stamp=$venv/setup.stamp
packages=requirements/locked/environment.txt stack=requirements/locked/${1:-openmmlab}.txt

fingerprint() { # of all that the environment was made from
    { echo "$root $venv ${MMCV_CUDA:-}" && "$py" -V && cat requirements/{,locked/}*.txt \
        requirements.txt setup.py mmbixt/version.py tools/dev/setup_env.sh; } 2>&1 | cksum
}
up_to_date() {
    [ -e mmbixt.egg-info ] && [ "$(fingerprint)" = "$(cat "$stamp" 2>&1)" ] &&
        { [ -z "${PYTHON:-}" ] || [ "$("$PYTHON" -V 2>&1)" = "$("$py" -V)" ]; }
}
find_python() {
    local names=("${PYTHON:-python3.11}")
    [ "${PYTHON:-}" ] || names+=(python3.12 python3)
    for python in "${names[@]}"; do
        [[ $("$python" -V 2>&1) != 'Python 3.1'[12].* ]] || return 0
    done
    fail 'Python 3.11 or 3.12 is needed; install one, or name it: make PYTHON=python3.11 ...'
}

install() {
    "$venv/bin/uv" pip install --python "$py" --no-deps "$@"
}
pins_of() { # pins_of PACKAGE FILE: its lines in a locked file, the version and its hashes
    sed -n "/^$1==/,/[^\\\\]\$/p" "$2"
}

unite() { # unite FOLDER [KEPT...]: its C++ files as one, which parses torch's headers once
    local folder=$1 file name
    shift
    for file in "$folder"/*.cpp; do
        name=$(basename "$file" .cpp)
        [[ " $* " != *" $name "* ]] || continue
        mv "$file" "$folder/$name.inc" # a name that mmcv's setup.py does not look for
        echo "#include \"$name.inc\""
    done >"$folder/files"
    { echo '#include <torch/extension.h>' && cat "$folder/files"; } >"$folder/united.cpp"
}
build_mmcv() { # build_mmcv NAME FOLDER: make a folder with its wheel, for the installed torch
    local cores memory sdist=$venv/sdist united=$venv/sdist/united/mmcv/ops/csrc/pytorch
    cores=$(getconf _NPROCESSORS_ONLN)
    memory=$(awk '/MemAvailable/ { print int($2 / 3 / 1024 / 1024) }' /proc/meminfo) # 3 GB each
    export MMCV_WITH_OPS=1 MAX_JOBS=${JOBS:-$((memory < 1 ? 1 : memory < cores ? memory : cores))}
    # Hide GPUs: with a visible GPU, mmcv's setup.py builds for CUDA and ignores FORCE_CUDA.
    [ "${MMCV_CUDA:-}" ] && export FORCE_CUDA=1 || export FORCE_CUDA=0 CUDA_VISIBLE_DEVICES=
    "$py" -m pip download -q --no-cache-dir --no-deps --no-build-isolation --no-binary :all: \
        --require-hashes -r <(pins_of "$1" "$stack") -d "$sdist"
    mkdir "$sdist/united" && tar -xf "$sdist"/*.tar.gz -C "$sdist/united" --strip-components=1
    compile() {
        "$py" -m pip wheel -v --no-cache-dir --no-deps --no-build-isolation -w "$sdist/wheel" "$1" \
            >>"$venv/mmcv.log" 2>&1
    }
    compile_united() { # the files that are kept define names or macros of others
        echo 'setup: compiling mmcv; once, in two minutes on two cores'
        unite "$united" &&
            unite "$united/cpu" psamask roi_align roi_align_rotated rotated_feature_align &&
            compile "$sdist/united"
    }
    if [ "${MMCV_CUDA:-}" ] || ! compile_united; then
        echo 'setup: compiling mmcv file by file, as it comes; once, in ten minutes on two cores'
        compile "$sdist"/*.tar.gz || fail "mmcv was not built, see $venv/mmcv.log"
    fi
    mkdir -p "$(dirname "$2")" && mv -T "$sdist/wheel" "$2" && rm -r "$sdist"
}

up_to_date && exit
exec 9<tools/dev/setup_env.sh # one set-up at a time; the others wait for it
flock 9
up_to_date && exit

trap 'fail "interrupted; run it again to continue"' INT TERM
find_python
[ -e "$stamp" ] || [ -z "$(ls -A "$venv" 2>/dev/null)" ] ||
    fail "$venv was not made by this script; delete it or name another place: make VENV=..."
command -v "${CXX:-c++}" >/dev/null ||
    fail "mmcv needs a C++ compiler and Python's headers (Debian, Ubuntu: g++, python3-dev)"
echo "setup: making $venv (in all 3 GB of downloads, 6 GB on disk)"
mkdir -p "$venv"
: >"$stamp"
find "$venv" -mindepth 1 -maxdepth 1 ! -name setup.stamp -exec rm -rf {} +
"$python" -m venv "$venv"
"$py" -m pip install -q --no-deps --require-hashes -r <(pins_of uv "$packages")

export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1} # as pip does
install --require-hashes -r "$packages"
"$venv/bin/uv" pip install --python "$py" -c requirements/environment.txt torch torchvision

mmcv=$(grep -o '^[a-z-]*mmcv==[0-9.]*' "$stack")
torch=$("$py" -c 'import sys, torch; print(sys.implementation.cache_tag, torch.__version__)')
wheel=${XDG_CACHE_HOME:-$HOME/.cache}/mmbixt/$mmcv-${torch/ /-torch}${MMCV_CUDA:+-ops-cuda}
[ -e "$wheel" ] || build_mmcv "${mmcv%==*}" "$wheel"
install -q "$wheel"/*.whl
sed "/^$mmcv/,/[^\\\\]\$/d" "$stack" | install -q --require-hashes -r -
install -q --require-hashes --target "$venv/peft" -r requirements/locked/peft.txt # for one test

# As `pip install -e` did before it put metadata in site-packages: there, mim and mmengine would
# look for mmbixt/.mim beside the metadata instead of in the checkout.
"$py" setup.py -q egg_info
echo "$root" >"$("$py" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mmbixt.pth"

"$py" -W ignore -c 'import mmcv._ext, mmseg.models, mmdet.models, mmpretrain.models, mmbixt'
fingerprint >"$stamp"
