#!/bin/sh
# Takes Aliquot out of a cluster, however it was installed, with whatever it wrote on nodes and on pods that wait:
#   daemonset/uninstall.sh [--yes] [--force] [--no-wait] [--dry-run] [--help]
#
#   --yes      do not ask; without a terminal nothing is done otherwise
#   --force    also while pods hold slices: they would run on, uncounted; and where agents are ready and no node bears
#              what they write
#   --no-wait  do not wait for the kubelets: for five minutes they tell on each node's status what a plugin had that has
#              left, and then 0 for ever, which is taken away only by who waits for it
#   --dry-run  say what there is to go, and do nothing
#   --help     print this
#
# The cluster is that of kubectl's current context. What is installed there tells its domain and its namespace; where
# ALIQUOT_DOMAIN or ALIQUOT_NAMESPACE says another, nothing is done. Pods that hold slices are to be ended first. Pods
# that wait lose Aliquot's gate and go on waiting, for a scheduler that is gone: delete them, or install Aliquot again.
# Queues are deleted with their definition. Where a node does not answer within ALIQUOT_PATIENCE seconds (600), the
# others withdraw, it is named, and what guards what it bears stays: mend it, or delete it if it is not coming back, and
# run this again.
set -eu
patience=${ALIQUOT_PATIENCE:-600}
ours=app.kubernetes.io/part-of=aliquot

# What queues and their views are defined by: the last to go, so they tell the domain to every later try.
definitions() {
    kubectl get customresourcedefinitions --selector "$ours" --output name
}

# The namespaces to whose accounts rights are given; that of an installation that never came as far as its rights.
namespaces() {
    named=$(kubectl get clusterrolebindings --selector "$ours" --output go-template='{{range .items}}{{range .subjects
        }}{{with .namespace}}{{.}}{{"\n"}}{{end}}{{end}}{{end}}') || return 1
    [ -n "$named" ] || named=$(kubectl get namespaces --selector "$ours" --output go-template='{{range .items
        }}{{.metadata.name}}{{"\n"}}{{end}}') || return 1
    printf '%s\n' "$named" | sort -u
}

# Which one is meant ($1: the variable, $2: what it says, $3: what is installed, a line each).
meant() {
    chosen=$3
    [ -z "$2" ] || chosen=$(printf '%s\n' "$3" | grep -xF -e "$2") || true
    # shellcheck disable=SC2086 # names have no blanks
    [ "$(count "$chosen")" = 1 ] || refuse "$1 is ${2:-not set}, and installed in $cluster is" $3
    echo "$chosen"
}

# A line for each pod that holds a slice.
holders() {
    kubectl get pods --all-namespaces --output go-template='{{range .items}}{{$phase := .status.phase}}{{with
        .metadata.annotations}}{{if index . "'"$domain"'/grant"}}{{if and (ne $phase "Succeeded") (ne $phase "Failed")
        }}{{$phase}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}'
}

# Namespace and name of each pod that waits behind the gate.
gated() {
    kubectl get pods --all-namespaces --output go-template='{{range $pod := .items}}{{range
        .spec.schedulingGates}}{{if eq .name "'"$domain"'/queue"}}{{$pod.metadata.namespace}} {{$pod.metadata.name
        }}{{"\n"}}{{end}}{{end}}{{end}}'
}

# Every queue; none where an earlier try has deleted their definition.
queues() {
    case $definitions in
    *"/queues.$domain"*) kubectl get "queues.$domain" --output name ;;
    esac
}

# Mutating policies that make a pod its maker's: API servers before 1.36 know none.
stamping() {
    served=$(kubectl get --raw /apis/admissionregistration.k8s.io/v1) || return 1
    case $served in
    *'"mutatingadmissionpolicies"'*) echo mutatingadmissionpolicybindings,mutatingadmissionpolicies ;;
    esac
}

# Each gate goes, also of pods that come meanwhile: a request that was under way, an API server that still knows a webhook
# or a policy, as they do for seconds. It ends when nobody was found twice, some seconds apart.
free() {
    tries=0 quiet=0
    while [ "$quiet" -lt 2 ]; do
        waiting=$(gated) || return 1
        if [ -z "$waiting" ]; then
            quiet=$((quiet + 1))
            [ "$quiet" = 2 ] || sleep 5
        else
            quiet=0 tries=$((tries + 1))
            [ "$tries" -le 30 ] || { echo "gates can't be lifted: run this again" >&2; return 1; }
            lift "$waiting"
            sleep 1
        fi
    done
}

lift() {
    printf '%s\n' "$1" | while read -r pod_namespace pod; do
        # It may have gone meanwhile; whoever is left is looked for again.
        kubectl --namespace "$pod_namespace" patch pod "$pod" --type strategic --patch \
            '{"spec": {"schedulingGates": [{"name": "'"$domain"'/queue", "$patch": "delete"}]},
              "metadata": {"annotations": {"'"$domain"'/turn": null}}}' || true
    done
}

# Each node that bears what its agent wrote, whether or not it still joins.
bearing() {
    kubectl get nodes --output go-template='{{range $node := .items}}{{with .metadata.annotations}}{{if index .
        "'"$domain"'/inventory"}}{{$node.metadata.name}}{{"\n"}}{{end}}{{end}}{{with .status.capacity}}{{if index .
        "'"$domain"'/memory"}}{{$node.metadata.name}}{{"\n"}}{{end}}{{end}}{{end}}'
}

# The node of each agent that is ready.
ready_agents() {
    kubectl --namespace "$namespace" get pods --selector app.kubernetes.io/name=aliquot-agent --output \
        go-template='{{range $pod := .items}}{{range .status.conditions}}{{if and (eq .type "Ready") (eq .status "True")
        }}{{$pod.spec.nodeName}}{{"\n"}}{{end}}{{end}}{{end}}'
}

# Each node whose kubelet answers.
ready_nodes() {
    kubectl get nodes --output go-template='{{range $node := .items}}{{range .status.conditions}}{{if and (eq .type
        "Ready") (eq .status "True")}}{{$node.metadata.name}}{{"\n"}}{{end}}{{end}}{{end}}'
}

# The node of each pod of these names that is there and has not ended well.
nodes_with() {
    kubectl --namespace "$namespace" get pods --selector "app.kubernetes.io/name in ($1)" --output go-template='{{range
        .items}}{{if ne .status.phase "Succeeded"}}{{.spec.nodeName}}{{"\n"}}{{end}}{{end}}'
}

# Which nodes still have such pods when all have gone, or nobody waits any longer.
waited_for() {
    until=$(($(date +%s) + patience))
    while :; do
        nodes=$(nodes_with "$1") || exit 1
        if [ -z "$nodes" ] || [ "$(date +%s)" -ge "$until" ]; then break; fi
        sleep 1
    done
    echo "$nodes"
}

# All nodes at once, each by itself, and with the agent's own rights: nobody else may remove what it wrote.
withdraw() {
    for node; do
        # While its agent may live, it would write all of it anew.
        echo "$silent" | grep -qxF "$node" || echo "$withdrawal" | sed "s/NODE/$node/; s/--withdraw/$how/" |
            kubectl create --filename -
    done
}

# How many lines there are.
count() {
    printf '%s' "$1" | grep -c '' || true
}

usage() {
    sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
}

sure=no force=no dry=no how=--withdraw
for argument; do
    case $argument in
    --yes) sure=yes ;;
    --force) force=yes ;;
    --no-wait) how=--withdraw-no-wait ;;
    --dry-run) dry=yes ;;
    --help | -h) usage; exit 0 ;;
    *) echo "$argument is no option: nothing was done" >&2; usage >&2; exit 2 ;;
    esac
done

case $patience in
*[!0-9]* | 0?* | ?????????*)
    echo "ALIQUOT_PATIENCE is $patience, which is no number of seconds: nothing was done" >&2
    exit 2
    ;;
esac

# Some write a name and a password into a server's URL: that is nobody's to read here, or in a log.
cluster=$(kubectl config view --minify --output 'jsonpath={.current-context} ({.clusters[0].cluster.server})' \
    2>/dev/null | sed 's#://[^/]*@#://#')
[ -n "$cluster" ] || cluster="the cluster that kubectl finds"
refuse() {
    echo "$*: nothing was done" >&2
    exit 1
}
unseen() {
    refuse "$1 of $cluster can't be listed"
}
# Any other domain than the installed one would count nothing, and take the guards from what is there.
definitions=$(definitions) || unseen definitions
[ -n "$definitions" ] || refuse "Aliquot is not installed in $cluster (no definition bears $ours); where something of" \
    "it is left on nodes or pods, install it again as it was and run this"
domain=$(meant ALIQUOT_DOMAIN "${ALIQUOT_DOMAIN:-}" "$(printf '%s\n' "$definitions" | sed 's#.*/[^.]*[.]##' | sort -u)")
joins=node.$domain/share
# Where nothing names a namespace any more an earlier try has deleted it.
namespaces=$(namespaces) || unseen namespaces
namespace=aliquot-system
[ -z "$namespaces" ] || namespace=$(meant ALIQUOT_NAMESPACE "${ALIQUOT_NAMESPACE:-}" "$namespaces")

# What can't be counted is not taken for nothing.
held=$(holders) || unseen pods
waiting=$(gated) || unseen pods
queues=$(queues) || unseen queues
nodes=$(bearing) || unseen nodes
nodes=$(printf '%s\n' "$nodes" | sort -u)
stamping=$(stamping) || unseen "kinds of policies"
withdrawal=$(kubectl --namespace "$namespace" get configmap aliquot-withdraw --ignore-not-found --output \
    'jsonpath={.data.pod\.yaml}') || unseen ConfigMaps
if [ -n "$nodes" ] && [ -z "$withdrawal" ]; then
    refuse "the ConfigMap aliquot-withdraw, by which $(count "$nodes") nodes withdraw, is not in $namespace of" \
        "$cluster: install Aliquot again as it was and run this"
fi
if [ -z "$nodes" ] && [ "$force" = no ]; then
    agents=$(ready_agents) || unseen pods
    [ -z "$agents" ] || refuse "agents are ready on $(count "$agents") nodes, and no node bears what they write for" \
        "$domain: see what domain theirs is (kubectl --namespace $namespace logs ds/aliquot-agent), or say --force"
fi
cat <<EOF
Aliquot ($domain) is to go from $cluster: its namespace $namespace, policies, webhooks and rights,
$(count "$queues") queues, and what it wrote on $(count "$nodes") nodes. $(count "$held") pods hold slices;
$(count "$waiting") wait, and lose its gate.
EOF
[ "$dry" = no ] || exit 0
if [ -n "$held" ] && [ "$force" = no ]; then
    echo "$(count "$held") pods hold slices: end them, or run this with --force" >&2
    exit 1
fi
if [ "$sure" = no ]; then
    if [ ! -t 0 ]; then
        echo "nothing was done: say --yes" >&2
        exit 2
    fi
    printf 'Go on? Only "yes" does: '
    read -r answer
    [ "$answer" = yes ] || exit 1
fi

# Nobody is refused, gated or stamped any more, and nobody is granted anything; then nothing guards the gates.
kubectl delete --selector "$ours" "mutatingwebhookconfigurations,validatingwebhookconfigurations${stamping:+,$stamping}"
kubectl --namespace "$namespace" delete deployments --selector "$ours" --cascade=foreground
# Until then the centre was at work.
held=$(holders)
if [ -n "$held" ] && [ "$force" = no ]; then
    echo "$(count "$held") pods have got slices meanwhile: end them and run this again, or run it with --force;" \
        "webhooks and centre are gone, all else stays" >&2
    exit 1
fi
kubectl delete --ignore-not-found validatingadmissionpolicybinding/aliquot-guard-gates \
    validatingadmissionpolicy/aliquot-guard-gates
free

kubectl label nodes --selector "$joins" "$joins-"
silent=$(waited_for 'aliquot-agent, aliquot-endpoint, aliquot-mps')
# Those of an earlier try.
kubectl --namespace "$namespace" delete pods --wait=false --selector app.kubernetes.io/name=aliquot-withdraw
nodes=$(bearing)
if [ -n "$nodes" ]; then
    [ "$how" != --withdraw ] || echo "kubelets forget a plugin five minutes after it has left: waiting for that"
    # shellcheck disable=SC2046 # names of nodes have no blanks
    withdraw $(printf '%s\n' "$nodes" | sort -u)
fi
bears=$(waited_for aliquot-withdraw)
if [ -n "$silent$bears" ]; then
    ready=$(ready_nodes)
    for node in $(printf '%s\n' "$silent" "$bears" | sort -u); do
        if printf '%s\n' "$ready" | grep -qxF "$node"; then
            echo "node $node is ready, and Aliquot's pods there have not ended (kubectl --namespace $namespace" \
                "describe pods --field-selector spec.nodeName=$node): mend that; then run this again"
        else
            echo "node $node does not answer: bring it back, or delete it (kubectl delete node $node);" \
                "then run this again"
        fi
    done >&2
    exit 1
fi

kubectl --namespace kube-system delete --ignore-not-found lease/aliquot-kube-scheduler
kubectl --namespace kube-system delete --selector "$ours" rolebindings,roles
kubectl delete --selector "$ours" validatingadmissionpolicybindings,validatingadmissionpolicies
kubectl delete namespace --ignore-not-found "$namespace"
kubectl delete --selector "$ours" clusterrolebindings,clusterroles
# Without definitions nobody can look again.
free
kubectl delete --selector "$ours" customresourcedefinitions
