#!/usr/bin/env bash
# kubernetes/submit.sh JOB [ARGUMENT...]: run a job on Kubernetes, with the driver in a pod.
#
# CLUSTER     https://HOST:6443, the API server
# IMAGE       the image built from Dockerfile, in a registry of the cluster
# NAMESPACE   (default: default), with the service account `spark` that may create pods:
#                 kubectl create serviceaccount spark -n NAMESPACE
#                 kubectl create rolebinding spark --clusterrole=edit --serviceaccount=NAMESPACE:spark -n NAMESPACE
# SECRET      the name of a secret with the broker's password, if it requires one:
#                 kubectl create secret generic mtl --from-file=password -n NAMESPACE
#             The job then gets  --password-file /etc/secrets/mtl/password
set -euo pipefail
namespace=${NAMESPACE:-default}

secrets=()
if [ -n "${SECRET:-}" ]; then
    secrets=(--conf "spark.kubernetes.driver.secrets.$SECRET=/etc/secrets/mtl"
        --conf "spark.kubernetes.executor.secrets.$SECRET=/etc/secrets/mtl")
fi

# local:// is a path in the image. mtl_job.py is in the same directory.
exec spark-submit --master "k8s://$CLUSTER" --deploy-mode cluster --name "mtl-${1%.py}" \
    --conf spark.kubernetes.container.image="$IMAGE" \
    --conf spark.kubernetes.namespace="$namespace" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
    --conf spark.executor.instances="${EXECUTORS:-2}" \
    --py-files local:///opt/jobs/mtl_job.py \
    ${secrets[@]+"${secrets[@]}"} \
    "local:///opt/jobs/$1" "${@:2}"
