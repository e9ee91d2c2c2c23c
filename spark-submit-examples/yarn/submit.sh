#!/usr/bin/env bash
# yarn/submit.sh JOB [ARGUMENT...]: run a job on YARN, including Amazon EMR on EC2, with the driver in the cluster.
#
# PACKED=environment.tar.gz   the environment of ../pack.sh (default), packed on a machine like those of the cluster
# PASSWORD=FILE               the broker's password, if it requires one; the job then gets  --password-file mtl-password
set -euo pipefail
jobs=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

files=()
# YARN puts it into the working directory of driver and executors, readable by the application's user only.
if [ -n "${PASSWORD:-}" ]; then files=(--files "$PASSWORD#mtl-password"); fi

# The archive is unpacked as ./environment in every container, the driver's too.
exec spark-submit --master yarn --deploy-mode cluster \
    --archives "${PACKED:-environment.tar.gz}#environment" \
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
    --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python \
    --py-files "$jobs/mtl_job.py" \
    ${files[@]+"${files[@]}"} \
    "$jobs/$1" "${@:2}"
