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
# Queues are deleted with their definition. A namespace that Aliquot has not made, or where others have something, stays
# with what is theirs. Nothing is waited for longer than ALIQUOT_PATIENCE seconds (600): what has not ended by then is
# named, with its node and with what to do, and this is run again. Where a node does not answer, the others withdraw, and
# what guards what it bears stays; where it runs a centre, nothing more goes, for that may live on.
set -eu
patience=${ALIQUOT_PATIENCE:-600}
ours=app.kubernetes.io/part-of=aliquot
# Those that the policy guards too.
leases='scheduler|pace|node-.*|.{249,}'

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

# A line for each pod that holds a slice: of those on nodes, and not of the many that have ended.
holders() {
    kubectl get pods --all-namespaces --field-selector 'spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed' \
        --output go-template='{{range .items}}{{$phase := .status.phase}}{{with .metadata.annotations}}{{if index .
        "'"$domain"'/grant"}}{{$phase}}{{"\n"}}{{end}}{{end}}{{end}}'
}

# Namespace and name of each pod that waits behind the gate. Only who has no node can: no more than these are read.
gated() {
    kubectl get pods --all-namespaces --field-selector spec.nodeName= --output go-template='{{range $pod := .items
        }}{{range .spec.schedulingGates}}{{if eq .name "'"$domain"'/queue"}}{{$pod.metadata.namespace}} {{
        $pod.metadata.name}}{{"\n"}}{{end}}{{end}}{{end}}'
}

# The same of each that bears the gate, a note or a word of the centre.
noted() {
    # shellcheck disable=SC2046,SC2086 # a word each
    kubectl get pods --all-namespaces --field-selector spec.nodeName= --output go-template='{{range $pod := .items
        }}{{$ours := false}}{{range .spec.schedulingGates}}{{if eq .name "'"$domain"'/queue"}}{{$ours = true}}{{end
        }}{{end}}{{range .status.conditions}}{{if eq .type "'"$domain"'/admitted"}}{{$ours = true}}{{end}}{{end}}{{with
        .metadata.annotations}}{{if or'"$(printf ' (index . "'"$domain"'/%s")' $notes)"'}}{{$ours = true}}{{end}}{{end
        }}{{if $ours}}{{$pod.metadata.namespace}} {{$pod.metadata.name}}{{"\n"}}{{end}}{{end}}'
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

# It goes, also of pods that come meanwhile: a request that was under way, an API server that still knows a webhook or a
# policy, as they do for seconds. It ends when nobody was found twice, some seconds apart ($1: who finds them, $2: who
# takes it off them).
free() {
    tries=0 quiet=0
    while [ "$quiet" -lt 2 ]; do
        waiting=$($1) || return 1
        if [ -z "$waiting" ]; then
            quiet=$((quiet + 1))
            [ "$quiet" = 2 ] || sleep 5
        else
            quiet=0 tries=$((tries + 1))
            [ "$tries" -le 30 ] || stays "$waiting" || return 1
            $2 "$waiting"
            sleep 1
        fi
    done
}

# Somebody keeps us from it: a webhook of others, say.
stays() {
    echo "$(counted "$1" "pod bears" "pods bear") still what is ours, $(echo "$1" | sed 's# #/#; q') first; see above" \
        "what was said to that, mend it, and run this again" >&2
    return 1
}

# The gate, and what goes with it ($2).
lift() {
    patched "$1" '{"spec": {"schedulingGates": [{"name": "'"$domain"'/queue", "$patch": "delete"}]}'"${2:-}"'}'
}

# The notes too, and what is said of them: people would take it for true, and schedulers keep room where they were to go.
tidy() {
    # shellcheck disable=SC2086 # a word each
    lift "$1" ', "metadata": {"annotations": {'"$(printf "\"$domain/%s\": null\n" $notes | paste -s -d , -)"'}}'
    patched "$1" '{"status": {"nominatedNodeName": null,
        "conditions": [{"type": "'"$domain"'/admitted", "$patch": "delete"}]}}' --subresource status
}

# Each of these pods ($1), with this patch ($2): by four that go through their part of them, for one that is started for
# each pod takes an hour for ten thousand. A pod may have gone meanwhile, an API server may know a policy for seconds
# more, and whoever is left is looked for again: only after ten tries the last thing that went wrong is told.
patched() {
    pods=$1 patch=$2 words=$((tries > 10))
    shift 2
    for part in 0 1 2 3; do
        some=$(echo "$pods" | awk "NR % 4 == $part"' { printf "{\"apiVersion\": \"v1\", \"kind\": \"Pod\"," \
            " \"metadata\": {\"namespace\": \"%s\", \"name\": \"%s\"}}\n", $1, $2 }')
        [ -z "$some" ] || echo "$some" | kubectl patch --filename - --type strategic --patch "$patch" "$@" \
            2>&1 >/dev/null | tail -n "$words" >&2 &
    done
    wait
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

# Name and node of each pod of these names, or of each at all, that is there and has not ended well; of one without a
# node a dash.
pods_of() {
    kubectl --namespace "$namespace" get pods --selector "${1:+app.kubernetes.io/name in ($1)}" --output \
        go-template='{{range .items}}{{if ne .status.phase "Succeeded"}}{{.metadata.name}} {{or .spec.nodeName "-"
        }}{{"\n"}}{{end}}{{end}}'
}

# The namespace, as long as it is there.
standing() {
    kubectl get namespace "$namespace" --ignore-not-found --output name
}

# Kinds of what may lie in a namespace, but for Events and Endpoints, which end by themselves.
kinds() {
    all=$(kubectl api-resources --namespaced --verbs delete,list --output name) || return 1
    printf '%s\n' "$all" | grep -vx -e events -e events.events.k8s.io -e endpoints | paste -s -d , -
}

# Whether the namespace is Aliquot's own: a namespace that somebody else made stays, whatever lies in it.
made() {
    kubectl get namespaces --selector "$ours" --field-selector "metadata.name=$namespace" --output name
}

# What of others lies in it: without our label and without an owner, and none of what Aliquot, Helm and cert-manager write
# there for it, or Kubernetes in every namespace.
theirs() {
    in_it=$(kubectl --namespace "$namespace" get "$kinds" --ignore-not-found --selector "${ours%=*}!=${ours#*=}" --output \
        go-template='{{range .items}}{{if not .metadata.ownerReferences}}{{.kind}}/{{.metadata.name}}{{"\n"}}{{end}}{{end
        }}') || return 1
    printf '%s\n' "$in_it" | grep -vxE -e "Lease/($leases)" -e 'Secret/(sh[.]helm[.]release[.]v1[.].*|aliquot-.*)' \
        -e 'ServiceAccount/default|ConfigMap/kube-root-ca[.]crt|' || true
}

# What is ours in a namespace that stays.
empty() {
    kubectl --namespace "$namespace" delete "$within" --ignore-not-found --selector "$ours" "$kinds"
    beats=$(kubectl --namespace "$namespace" get leases --output name) || return 1
    beats=$(printf '%s\n' "$beats" | grep -E -e "/($leases)$") || return 0
    # shellcheck disable=SC2086 # names have no blanks
    kubectl --namespace "$namespace" delete "$within" --ignore-not-found $beats
}

# What is told when nothing is any more, or nobody waits any longer.
waited_for() {
    until=$(($(date +%s) + patience))
    while :; do
        left=$("$@") || exit 1
        if [ -z "$left" ] || [ "$(date +%s)" -ge "$until" ]; then break; fi
        sleep 1
    done
    echo "$left"
}

# What is to be done about these pods (a line each, as above), a line for each node.
remedies() {
    ready=$(ready_nodes) || exit 1
    echo "$1" | awk '{ there[$2] = there[$2] (there[$2] ? ", " : "") $1 }
        END { for (on in there) print on, there[on] }' | sort | while read -r node pods; do
        if printf '%s\n' "$ready" | grep -qxF -e "$node"; then
            echo "node $node is ready, and there $pods will not end (kubectl --namespace $namespace describe" \
                "pods --field-selector spec.nodeName=$node): mend that; then run this again"
        elif [ "$node" = - ]; then
            echo "$pods will not end, on no node (kubectl --namespace $namespace describe pods --field-selector" \
                "spec.nodeName=): mend that; then run this again"
        else
            echo "node $node does not answer, and $pods may run there: bring it back, or delete it (kubectl delete" \
                "node $node); then run this again"
        fi
    done >&2
}

# All nodes at once, each by itself, and with the agent's own rights: nobody else may remove what it wrote.
withdraw() {
    for node; do
        # While its agent may live, it would write all of it anew.
        echo "$silent" | sed 's/.* //' | grep -qxF -e "$node" ||
            echo "$withdrawal" | sed "s/NODE/$node/; s/--withdraw/$how/" | kubectl create --filename -
    done
}

# How many lines there are.
count() {
    printf '%s' "$1" | grep -c '' || true
}

# How many lines $1 has, in the words $2 if that is one, else $3.
counted() {
    case "$(count "$1")" in 1) echo "1 $2" ;; *) echo "$(count "$1") $3" ;; esac
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
    refuse "the ConfigMap aliquot-withdraw, by which $(counted "$nodes" "node withdraws" "nodes withdraw"), is not in" \
        "$namespace of $cluster: install Aliquot again as it was and run this"
fi
if [ -z "$nodes" ] && [ "$force" = no ]; then
    agents=$(ready_agents) || unseen pods
    [ -z "$agents" ] || refuse "agents are ready on $(counted "$agents" node nodes), and no node bears what they write" \
        "for $domain: see what domain theirs is (kubectl --namespace $namespace logs ds/aliquot-agent), or say --force"
fi
kinds=$(kinds) || unseen "kinds of objects"
made=$(made) || unseen namespaces
there=$(standing) || unseen namespaces
theirs=$(theirs) || unseen "objects of $namespace"
stays=
[ -n "$made" ] || [ -z "$there" ] || stays=" (which stays, for it was not made by Aliquot)"
[ -z "$theirs" ] || stays=" (which stays with $(counted "$theirs" object objects) of others)"
cat <<EOF
Aliquot ($domain) is to go from $cluster: its namespace $namespace$stays, policies, webhooks and rights,
$(counted "$queues" queue queues), and what it wrote on $(counted "$nodes" node nodes). $(\
    counted "$held" "pod holds" "pods hold") slices;
$(counted "$waiting" "waits, and loses" "wait, and lose") its gate.
EOF
[ "$dry" = no ] || exit 0
if [ -n "$held" ] && [ "$force" = no ]; then
    echo "$(counted "$held" "pod holds" "pods hold") slices: end them, or run this with --force" >&2
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

# What has finalizers of others is waited for no longer than all else, and named by kubectl.
within=--timeout=$((patience + 1))s
# Nobody is refused, gated or stamped any more, and nobody is granted anything; then nothing guards the gates.
kubectl delete "$within" --selector "$ours" \
    "mutatingwebhookconfigurations,validatingwebhookconfigurations${stamping:+,$stamping}"
kubectl --namespace "$namespace" delete deployments --selector "$ours" --cascade=foreground --wait=false
# One of a node that does not answer may live on, and grant.
left=$(waited_for pods_of 'aliquot-scheduler, aliquot-kube-scheduler')
if [ -n "$left" ]; then
    remedies "$left"
    exit 1
fi
# Until then the centre was at work.
held=$(holders)
if [ -n "$held" ] && [ "$force" = no ]; then
    echo "$(counted "$held" "pod has" "pods have") got slices meanwhile: end them and run this again, or run it with" \
        "--force; webhooks and centre are gone, all else stays" >&2
    exit 1
fi
kubectl delete "$within" --ignore-not-found validatingadmissionpolicybinding/aliquot-guard-gates \
    validatingadmissionpolicy/aliquot-guard-gates
# The notes stay guarded while agents are there: they go last.
free gated lift

kubectl label nodes --selector "$joins" "$joins-"
silent=$(waited_for pods_of 'aliquot-agent, aliquot-endpoint, aliquot-mps')
# Those of an earlier try.
kubectl --namespace "$namespace" delete pods --wait=false --selector app.kubernetes.io/name=aliquot-withdraw
nodes=$(bearing)
if [ -n "$nodes" ]; then
    [ "$how" != --withdraw ] || echo "kubelets forget a plugin five minutes after it has left: waiting for that"
    # shellcheck disable=SC2046 # names of nodes have no blanks
    withdraw $(printf '%s\n' "$nodes" | sort -u)
fi
bears=$(waited_for pods_of aliquot-withdraw)
if [ -n "$silent$bears" ]; then
    remedies "$(printf '%s\n' "$silent" "$bears" | grep .)"
    exit 1
fi

kubectl --namespace kube-system delete "$within" --ignore-not-found lease/aliquot-kube-scheduler
kubectl --namespace kube-system delete "$within" --selector "$ours" rolebindings,roles
kubectl delete "$within" --selector "$ours" validatingadmissionpolicybindings,validatingadmissionpolicies
# Somebody may have put something there meanwhile.
made=$(made)
theirs=$(theirs)
if [ -n "$made" ] && [ -z "$theirs" ]; then
    kubectl delete namespace --wait=false --ignore-not-found "$namespace"
    left=$(waited_for standing) there=
else
    empty
    left='' there=$(standing)
fi
if [ -n "$left" ]; then
    left=$(pods_of '')
    [ -z "$left" ] || remedies "$left"
    kubectl get namespace "$namespace" --ignore-not-found --output go-template='{{range .status.conditions}}{{if
        eq .status "True"}}{{.message}}{{"\n"}}{{end}}{{end}}' >&2
    echo "the namespace $namespace does not end: see there what is in its way, mend that, and run this again" >&2
    exit 1
fi
kubectl delete "$within" --selector "$ours" clusterrolebindings,clusterroles
# Without definitions nobody can look again.
notes='turn promised-to shown room charged-to over-use group-run'
free noted tidy
kubectl delete "$within" --selector "$ours" customresourcedefinitions || {
    echo "queues or views with finalizers of others keep their definitions (kubectl get queues.$domain -o yaml):" \
        "mend that, and run this again" >&2
    exit 1
}
[ -z "$there" ] || printf '%s\n' "the namespace $namespace stays, with what others have there (all of Aliquot's has gone):" \
    "${theirs:-nothing, but Aliquot has not made it}"
