from pathlib import Path
from runpy import run_path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def requirements():
    lines = (ROOT / 'requirements.txt').read_text().splitlines()
    return [line for line in lines if line and not line.startswith('#')]


# Metadata is here and not in pyproject.toml because openmim's dependencies hold setuptools at 60,
# which would ignore it there and build a nameless wheel.
setup(
    name='mmbixt',
    version=run_path(str(ROOT / 'mmbixt/version.py'))['__version__'],
    description='Efficient vision transformers for dense prediction in OpenMMLab',
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    license_files=['LICENSE', 'NOTICE'],
    python_requires='>=3.11',
    install_requires=requirements(),
    # The tested versions, for an environment without the fork. mmcv is missing on purpose: pip
    # would build it apart from torch, and so silently without its operators.
    extras_require={
        'mim': ['openmim==0.3.9'],
        'seg': ['mmengine==0.10.7', 'mmsegmentation==1.2.2', 'ftfy', 'regex'],
        'det': ['mmengine==0.10.7', 'mmdet==3.3.0', 'faster-coco-eval==1.8.0'],
        'cls': ['mmengine==0.10.7', 'mmpretrain==1.2.0', 'importlib_metadata<8'],
        # for tools/analysis/report.py; torch and mmengine bring them as well
        'report': ['Jinja2>=3.1', 'matplotlib>=3.8', 'Pygments>=2.15'],
        # for tools/analysis/boundary_eval.py and BoundaryScores; mmengine brings the first two
        'boundary': ['matplotlib>=3.8', 'opencv-python>=4.8', 'torchmetrics>=1.2'],
        # for tools/export_onnx.py
        'export': ['onnx==1.23.2', 'onnxscript==0.7.2', 'onnxruntime==1.32.0'],
    },
    packages=find_packages(include=['mmbixt', 'mmbixt.*']),
    # mim and mmengine look for configs and tools inside the installed package. In the repository
    # these are links to configs/ and tools/; a wheel gets the files.
    package_data={
        'mmbixt': [f'.mim/**/*.{kind}' for kind in ('py', 'sh', 'md', 'yml')],
        'mmbixt.report': ['templates/*'],
    },
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Science/Research',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Programming Language :: Python :: 3.14',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Topic :: Scientific/Engineering :: Image Recognition',
    ],
)
