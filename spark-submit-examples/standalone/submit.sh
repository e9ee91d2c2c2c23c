#!/usr/bin/env bash
# MASTER=spark://HOST:7077 standalone/submit.sh JOB [ARGUMENT...]: run a job on a Standalone cluster, with the driver on this machine.
#
# PACKED=environment.tar.gz   the archive of ../pack.sh; then the cluster needs no pyspark-mtl. Without it pyspark-mtl has
#                             to be installed on every machine, for the Python at the path of PYSPARK_PYTHON.
# SPARK_HOME                  with PACKED: where Spark is (default: the PySpark of `python`)
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

archives=()
if [ -n "${PACKED:-}" ]; then
    # spark-submit of pip asks its Python where Spark is. The archive's Python has no PySpark, so it gets Spark's own.
    export SPARK_HOME="${SPARK_HOME:-$(python -c 'import pyspark; print(*pyspark.__path__)')}"
    # Driver and executors start the same relative path, each in its own directory; executors find the archive there.
    mkdir -p environment && tar -xf "$PACKED" -C environment
    archives=(--archives "$PACKED#environment")
    export PYSPARK_PYTHON=./environment/bin/python
    unset PYSPARK_DRIVER_PYTHON # executors would use it too: Spark finds data sources with it
fi
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python)}"

# The checkpoint and all files have to be on storage that every machine sees at the same path.
exec spark-submit --master "$MASTER" \
    --conf spark.executor.memory="${EXECUTOR_MEMORY:-2g}" \
    ${archives[@]+"${archives[@]}"} \
    "$jobs/$1" "${@:2}"
