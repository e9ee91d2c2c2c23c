#!/usr/bin/env bash
# local/submit.sh JOB [ARGUMENT...]: run a job of the directory above on this machine.
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

# Few partitions, quiet logs; conf/spark-defaults.conf has the reason for each setting.
export SPARK_CONF_DIR="${SPARK_CONF_DIR:-$jobs/../conf}"
# Spark's workers use this Python: the first python3 on PATH may not have pyspark-mtl.
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python)}"

# local[*,4]: all cores, and four attempts for a task as on a cluster; with local[*] a task has one.
exec spark-submit --master 'local[*,4]' "$jobs/$1" "${@:2}"
