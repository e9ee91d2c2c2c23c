#!/usr/bin/env bash
# local/submit.sh JOB [ARGUMENT...]: run a job of the directory above on this machine.
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

# Few partitions, quiet logs; conf/spark-defaults.conf has the reason beside each setting.
export SPARK_CONF_DIR="${SPARK_CONF_DIR:-$jobs/../conf}"
# Spark's workers are this Python, not the first python3 on PATH, which need not have pyspark-mtl.
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python)}"

# local[*,4]: all cores, and four attempts for a task as on a cluster; local[*] gives a task one.
exec spark-submit --master 'local[*,4]' "$jobs/$1" "${@:2}"
