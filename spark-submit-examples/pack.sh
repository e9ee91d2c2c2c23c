#!/usr/bin/env bash
# pack.sh WHEEL [FILE]: pack pyspark-mtl and its dependencies as an environment that spark-submit distributes (--archives),
# into FILE (default: environment.tar.gz).
#
# PYTHON names the interpreter. The archive refers to it by its path and does not contain it: on every machine the same
# version has to be at the same path. Otherwise use conda-pack, which packs the interpreter too:
#
#     conda create -y -p packed python=3.12 && packed/bin/pip install 'WHEEL[scram]'
#     conda pack -p packed -o environment.tar.gz
set -euo pipefail
wheel=$(cd -- "$(dirname -- "$1")" && pwd)/$(basename -- "$1") file=${2:-environment.tar.gz}

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
"${PYTHON:-python3}" -m venv "$build/packed"
# Without the extra `spark`: the cluster has Spark, and another one in the environment would hide it. venv-pack needs
# setuptools; numpy and pandas are not needed.
"$build/packed/bin/pip" install --quiet "$wheel[scram]" venv-pack 'setuptools<81'
"$build/packed/bin/venv-pack" --quiet --force --prefix "$build/packed" --output "$file"
echo "$file"
