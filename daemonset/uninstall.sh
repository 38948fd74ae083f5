#!/bin/sh
# Takes Aliquot out of a cluster, however it was installed, with whatever it wrote on nodes and on pods that wait:
#   daemonset/uninstall.sh [--force]
#
# Pods that hold slices are to be ended first: they would run on, uncounted. Pods that wait lose Aliquot's gate and go on
# waiting, for a scheduler that is gone: delete them, or install Aliquot again. Queues are deleted with their definition.
set -eu
namespace=${ALIQUOT_NAMESPACE:-aliquot-system}
domain=${ALIQUOT_DOMAIN:-aliquot.dev}
joins=node.$domain/share
ours=app.kubernetes.io/part-of=aliquot

# A line for each pod that holds a slice.
holders() {
    kubectl get pods --all-namespaces --output go-template='{{range .items}}{{$phase := .status.phase}}{{with
        .metadata.annotations}}{{if index . "'"$domain"'/grant"}}{{if and (ne $phase "Succeeded") (ne $phase "Failed")
        }}{{$phase}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}' | wc -l
}

# Namespace and name of each pod that waits behind the gate.
gated() {
    kubectl get pods --all-namespaces --output go-template='{{range $pod := .items}}{{range
        .spec.schedulingGates}}{{if eq .name "'"$domain"'/queue"}}{{$pod.metadata.namespace}} {{$pod.metadata.name
        }}{{"\n"}}{{end}}{{end}}{{end}}'
}

lift() {
    gated | while read -r pod_namespace pod; do
        kubectl --namespace "$pod_namespace" patch pod "$pod" --type strategic --patch \
            '{"spec": {"schedulingGates": [{"name": "'"$domain"'/queue", "$patch": "delete"}]},
              "metadata": {"annotations": {"'"$domain"'/turn": null}}}' || true
    done
}

serving() {
    kubectl --namespace "$namespace" get pods --output name --selector \
        'app.kubernetes.io/name in (aliquot-agent, aliquot-endpoint, aliquot-mps)'
}

# All nodes at once, and with the agent's own rights: nobody else may remove what it wrote.
withdraw() {
    kubectl label nodes --selector "$joins" "$joins-"
    for pod in $(serving); do
        kubectl --namespace "$namespace" wait --for delete --timeout 5m "$pod"
    done
    pod=$(kubectl --namespace "$namespace" get configmap aliquot-withdraw --output 'jsonpath={.data.pod\.yaml}')
    for node; do
        echo "$pod" | sed "s/NODE/$node/" | kubectl create --filename -
    done
    kubectl --namespace "$namespace" wait --for 'jsonpath={.status.phase}=Succeeded' --timeout 5m pods \
        --selector app.kubernetes.io/name=aliquot-withdraw
}

if [ "$(holders)" -gt 0 ] && [ "${1:-}" != --force ]; then
    echo "$(holders) pods hold slices: end them, or run this with --force" >&2
    exit 1
fi

# Nobody is refused or gated any more, and nobody is granted anything; then nothing guards the gates.
kubectl delete --selector "$ours" mutatingwebhookconfigurations,validatingwebhookconfigurations
kubectl --namespace "$namespace" delete deployments --selector "$ours" --cascade=foreground
kubectl delete --ignore-not-found validatingadmissionpolicybinding/aliquot-guard-gates \
    validatingadmissionpolicy/aliquot-guard-gates
# The API server forgets a policy, and a webhook, within seconds.
tries=0
while lift && [ -n "$(gated)" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 30 ] || { echo "gates can't be lifted" >&2; exit 1; }
    sleep 1
done

nodes=$(kubectl get nodes --selector "$joins" --output 'jsonpath={.items[*].metadata.name}')
# shellcheck disable=SC2086 # names of nodes have no blanks
[ -z "$nodes" ] || withdraw $nodes

kubectl --namespace kube-system delete --ignore-not-found lease/aliquot-kube-scheduler
kubectl --namespace kube-system delete --selector "$ours" rolebindings,roles
kubectl delete --selector "$ours" validatingadmissionpolicybindings,validatingadmissionpolicies
kubectl delete namespace --ignore-not-found "$namespace"
kubectl delete --selector "$ours" clusterrolebindings,clusterroles,customresourcedefinitions
