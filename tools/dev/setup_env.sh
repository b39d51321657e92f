#!/usr/bin/env bash
# Makes the virtual environment that the `make` targets use, or sees that it is up to date. After a
# change or an interruption it is made anew, from what uv has downloaded and the wheel of mmcv that
# was built.
#
#   VENV=.venv         where it is
#   PYTHON=python3.12  the Python to use, 3.11 to 3.14 (unset: the first that can build mmcv)
#   STACK=onedl        the packages of the OneDL fork instead of OpenMMLab's; they have the same
#                      module names, so one environment cannot have both (unset: `openmmlab`, but
#                      `onedl` where that is all that works)
#   JOBS=1             compilers at once while mmcv builds (unset: what cores and memory allow)
#   MMCV_CUDA=1        build mmcv's CUDA operators, too; 0: do not (unset: do so if torch sees a GPU
#                      while the environment is made). nvcc comes from pip packages.
#   TORCH_CUDA_ARCH_LIST='8.0 9.0'  architectures of GPUs to build them for (unset: of those that
#                      torch sees; if it sees none, 7.5+PTX, which runs on every GPU of this torch)
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
unset PYTHONDONTWRITEBYTECODE # else each run would warn of invalid escapes in others' files
venv=$(realpath -m "${VENV:-.venv}")
py=$venv/bin/python stamp=$venv/setup.stamp built_for=$venv/mmcv.architectures
site_packages='import sysconfig; print(sysconfig.get_path("purelib"))'
packages=requirements/locked/environment.txt

fingerprint() { # of all that the environment was made from
    { echo "$root $venv" && "$py" -V && cat requirements/{,locked/}*.txt \
        requirements.txt setup.py mmbixt/version.py tools/dev/setup_env.sh; } 2>&1 | cksum
}
has_operators() { # those that MMCV_CUDA asks for; unset, it takes what is there
    local gpus
    gpus=$(cat "$built_for")
    case ${MMCV_CUDA:-} in
        0) [ -z "$gpus" ] ;;
        1) [ "$gpus" ] && [ "${TORCH_CUDA_ARCH_LIST:-$gpus}" = "$gpus" ] ;;
    esac
}
up_to_date() {
    [ -e mmbixt.egg-info ] && [[ $(cat "$stamp" 2>&1) = "$(fingerprint) "${STACK:-*} ]] &&
        has_operators &&
        { [ -z "${PYTHON:-}" ] || [ "$("$PYTHON" -V 2>&1)" = "$("$py" -V)" ]; }
}
find_python() {
    local names=(python3.{12,11,13,14})
    [ -z "${PYTHON:-}" ] || names=("$PYTHON")
    for python in "${names[@]}"; do
        ! "$python" -c 'import ensurepip, os, sys, sysconfig, venv
assert (3, 11) <= sys.version_info < (3, 15)
os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || return 0
    done
    fail 'Python 3.11 to 3.14 with venv and headers is needed (Debian, Ubuntu: python3-venv,' \
        'python3-dev); install it, or name one: make PYTHON=python3.12 ...'
}

install() {
    "$venv/bin/uv" pip install --python "$py" --no-deps "$@"
}
pins_of() { # pins_of PACKAGE FILE: its lines in a locked file, the version and its hashes
    sed -n "/^$1==/,/[^\\\\]\$/p" "$2"
}

gpu_architectures() { # those to build mmcv's CUDA operators for; none: no CUDA operators
    local cuda gpus nvcc
    [ "${MMCV_CUDA:-}" != 0 ] || return 0
    read -r cuda gpus < <("$py" -c 'import torch
gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
capabilities = {"%d.%d" % torch.cuda.get_device_capability(i) for i in gpus}
print(torch.version.cuda or "none", *sorted(capabilities))')
    [ "${MMCV_CUDA:-}$gpus" ] || return 0
    nvcc=$(sed -n 's/^nvidia-cuda-nvcc==//p' requirements/cuda.txt)
    if [[ $nvcc == "$cuda".* ]]; then
        echo "${TORCH_CUDA_ARCH_LIST:-${gpus:-7.5+PTX}}"
    elif [ "${MMCV_CUDA:-}" ]; then
        fail "nvcc $nvcc does not fit the CUDA that torch was built with: $cuda"
    else
        echo "setup: no CUDA operators, since nvcc $nvcc does not fit the CUDA of torch: $cuda" >&2
    fi
}

unite() ( # unite FOLDER SUFFIX [GROUP...]: its files as one for each group, and one of all others
    cd "$1" && suffix=$2 number=0 && shift 2
    for group in "$@" '*'; do
        {
            [ "$suffix" = cu ] || echo '#include <torch/extension.h>'
            for file in ${group// /.$suffix }.$suffix; do
                [ -e "$file" ] || continue # line_nms is OneDL's alone
                mv "$file" "${file%.*}.inc" # a name that mmcv's setup.py does not look for
                echo "#include \"${file%.*}.inc\""
            done
        } >"united$((number += 1))"
    done
    for file in united*; do
        mv "$file" "$file.$suffix"
    done
)
unite_mmcv() { # unite_mmcv FOLDER: compilers then parse torch's headers 14 times instead of 136
    # Files that define the same names or macros are in different groups. The CUDA groups take about
    # as long as each other, so that cores share them well.
    unite "$1" cpp
    unite "$1/cpu" cpp psamask roi_align roi_align_rotated rotated_feature_align
    unite "$1/cuda" cu 'filtered_lrelu convex_iou' \
        'spconv_ops_cuda nms_quadri_cuda roiaware_pool3d_cuda' \
        'sparse_maxpool sparse_pool_ops_cuda box_iou_quadri_cuda' \
        'sparse_indice sparse_reordering fused_spconv_ops_cuda min_area_polygons' \
        'upfirdn2d_kernel box_iou_rotated_cuda carafe_naive_cuda voxelization_cuda line_nms_cuda' \
        'ms_deform_attn_cuda nms_rotated_cuda roipoint_pool3d_cuda'
}
build_mmcv() { # build_mmcv NAME FOLDER GPUS: make a folder with its wheel, for the installed torch
    local cores memory source minutes=4 sdist=$venv/sdist
    cores=$(getconf _NPROCESSORS_ONLN)
    memory=$(awk '/MemAvailable/ { print int($2 / 3 / 1024 / 1024) }' /proc/meminfo) # 3 GB each
    export MMCV_WITH_OPS=1 MAX_JOBS=${JOBS:-$((memory < 1 ? 1 : memory < cores ? memory : cores))}
    # pip runs setup.py as well, for metadata. With Python 3.13 that of mmcv 2.1.0 fails, since it
    # reads locals() after exec(): so take what pip unpacked, and mend that line.
    mkdir "$sdist"
    TMPDIR=$sdist "$py" -m pip download -q --no-clean --no-cache-dir --no-deps \
        --no-build-isolation --no-binary :all: --require-hashes -r <(pins_of "$1" "$stack") \
        -d "$sdist" >>"$venv/mmcv.log" 2>&1 || true
    source=$(dirname "$sdist"/pip-download-*/*/setup.py)
    [ -e "$source" ] || fail "the source of mmcv was not fetched, see $venv/mmcv.log"
    sed -i "s/locals()\['__version__'\]/'${mmcv#*==}'/" "$source/setup.py"
    if [ "$3" ]; then # nvcc beside torch's headers, in a copy that is deleted afterwards
        minutes=15
        cp -as "$("$py" -c "$site_packages")/nvidia" "$sdist"
        install -q --require-hashes --target "$sdist" -r requirements/locked/cuda.txt
        export FORCE_CUDA=1 CUDA_HOME=$sdist/nvidia/cu13 TORCH_CUDA_ARCH_LIST=$3
        ln -s libcudart.so.13 "$CUDA_HOME/lib/libcudart.so"
    else # with a visible GPU, mmcv's setup.py builds for CUDA and ignores FORCE_CUDA
        export FORCE_CUDA=0 CUDA_VISIBLE_DEVICES=
    fi
    compile() {
        "$py" -m pip wheel -v --no-cache-dir --no-deps --no-build-isolation -w "$sdist/wheel" "$1" \
            >>"$venv/mmcv.log" 2>&1
    }
    compile_united() {
        echo "setup: compiling mmcv ${3:+for GPUs ($3) }in $minutes minutes of processor time, once"
        cp -r "$source" "$sdist/united"
        unite_mmcv "$sdist/united/mmcv/ops/csrc/pytorch" && compile "$sdist/united"
    }
    if ! compile_united "$@"; then
        echo 'setup: compiling mmcv file by file, as it comes; this takes five times as long'
        compile "$source" || fail "mmcv was not built, see $venv/mmcv.log"
    fi
    mkdir -p "$(dirname "$2")" && mv -T "$sdist/wheel" "$2" && rm -r "$sdist"
}

up_to_date && exit
exec 9<tools/dev/setup_env.sh # one set-up at a time; the others wait for it
flock 9
up_to_date && exit

trap 'fail "interrupted; run it again to continue"' INT TERM
owner=$(cat "$venv"/lib/python3*/site-packages/mmbixt.pth 2>/dev/null) || owner=$root
[ "$owner" = "$root" ] || [ ! -e "$owner/tools/dev/setup_env.sh" ] ||
    fail "$venv was made by another checkout, $owner; name another place: make VENV=..."
find_python
[ -e "$stamp" ] || [ -z "$(ls -A "$venv" 2>/dev/null)" ] ||
    fail "$venv was not made by this script; delete it or name another place: make VENV=..."
command -v "${CXX:-c++}" >/dev/null || fail 'mmcv needs a C++ compiler (Debian, Ubuntu: g++)'
if [ -z "${STACK:-}" ] && [[ $("$python" -V) = 'Python 3.14.'* ]]; then
    STACK=onedl
    echo "setup: OneDL's packages, since OpenMMLab's do not work with Python 3.14"
fi
stack=requirements/locked/${STACK:=openmmlab}.txt
mmcv=$(grep -o '^[a-z-]*mmcv==[0-9.]*' "$stack")
echo "setup: making $venv (in all 3 GB of downloads, 6 GB on disk)"
mkdir -p "$venv"
: >"$stamp"
find "$venv" -mindepth 1 -maxdepth 1 ! -name setup.stamp -exec rm -rf {} +
"$python" -m venv "$venv"
# As `pip install -e` did before it put metadata in site-packages: there, mim and mmengine would
# look for mmbixt/.mim beside the metadata instead of in the checkout.
echo "$root" >"$("$py" -c "$site_packages")/mmbixt.pth"
"$py" -m pip install -q --no-deps --require-hashes -r <(pins_of uv "$packages")

export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1} # as pip does
install --require-hashes -r "$packages"
"$venv/bin/uv" pip install --python "$py" -c requirements/environment.txt torch torchvision

torch=$("$py" -c 'import sys, torch; print(sys.implementation.cache_tag, torch.__version__)')
gpus=$(gpu_architectures)
wheel=${XDG_CACHE_HOME:-$HOME/.cache}/mmbixt/$mmcv-${torch/ /-torch}${gpus:+-cuda-${gpus//[; ]/-}}
[ -e "$wheel" ] || build_mmcv "${mmcv%==*}" "$wheel" "$gpus"
install -q "$wheel"/*.whl
sed "/^$mmcv/,/[^\\\\]\$/d" "$stack" | install -q --require-hashes -r -
install -q --require-hashes --target "$venv/peft" -r requirements/locked/peft.txt # for one test

"$py" setup.py -q egg_info
"$py" -W ignore -c 'import mmcv._ext, mmseg.models, mmdet.models, mmpretrain.models, mmbixt'
echo "$gpus" >"$built_for"
echo "$(fingerprint) $STACK" >"$stamp"
