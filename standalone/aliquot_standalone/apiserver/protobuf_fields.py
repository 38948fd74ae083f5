"""Numbers, names and kinds of the fields that clients send as protobuf: those of Kubernetes' public API.

Each is `number name kind`. Kinds: `s` text (empty is left out: it was not given), `i` a number, `I` one that is left
out if it is 0, `b` yes or no, `y` bytes, another message by its name; `*` before it for a list, `=` for a map, `-` for
what the server writes itself. What is not listed is refused, not dropped.
"""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """One field."""

    name: str
    kind: str


_KINDS = {
    "Namespace": "1 metadata ObjectMeta; 2 spec NamespaceSpec; 3 status -",
    "ConfigMap": "1 metadata ObjectMeta; 2 data =s; 3 binaryData =y; 4 immutable b",
    "Secret": "1 metadata ObjectMeta; 2 data =y; 3 type s; 4 stringData =s; 5 immutable b",
    "ServiceAccount": "1 metadata ObjectMeta; 4 automountServiceAccountToken b",
    "ResourceQuota": "1 metadata ObjectMeta; 2 spec ResourceQuotaSpec; 3 status -",
    "PriorityClass": "1 metadata ObjectMeta; 2 value i; 3 globalDefault b; 4 description s; 5 preemptionPolicy s",
    "Job": "1 metadata ObjectMeta; 2 spec JobSpec; 3 status -",
    "CronJob": "1 metadata ObjectMeta; 2 spec CronJobSpec; 3 status -",
    "Pod": "1 metadata ObjectMeta; 2 spec PodSpec; 3 status -",
    "Eviction": "1 metadata ObjectMeta; 2 deleteOptions DeleteOptions",
    "DeleteOptions": "1 gracePeriodSeconds i; 2 preconditions Preconditions; 4 propagationPolicy s; 5 dryRun *s",
}
_PARTS = {
    "ObjectMeta": """1 name s; 2 generateName s; 3 namespace s; 4 selfLink -; 5 uid s; 6 resourceVersion s;
        7 generation -; 8 creationTimestamp -; 9 deletionTimestamp -; 10 deletionGracePeriodSeconds -; 11 labels =s;
        12 annotations =s; 13 ownerReferences *OwnerReference; 14 finalizers *s; 17 managedFields -""",
    "OwnerReference": "1 kind s; 3 name s; 4 uid s; 5 apiVersion s; 6 controller b; 7 blockOwnerDeletion b",
    "Preconditions": "1 uid s; 2 resourceVersion s",
    "NamespaceSpec": "1 finalizers *s",
    "ResourceQuotaSpec": "1 hard =Quantity; 2 scopes *s",
    "JobSpec": """1 parallelism i; 2 completions i; 3 activeDeadlineSeconds i; 4 selector LabelSelector;
        5 manualSelector b; 6 template PodTemplateSpec; 7 backoffLimit i; 8 ttlSecondsAfterFinished i;
        9 completionMode s; 10 suspend b; 12 backoffLimitPerIndex i; 13 maxFailedIndexes i; 14 podReplacementPolicy s;
        15 managedBy s""",
    "CronJobSpec": """1 schedule s; 2 startingDeadlineSeconds i; 3 concurrencyPolicy s; 4 suspend b;
        5 jobTemplate JobTemplateSpec; 6 successfulJobsHistoryLimit i; 7 failedJobsHistoryLimit i; 8 timeZone s""",
    "JobTemplateSpec": "1 metadata ObjectMeta; 2 spec JobSpec",
    "PodTemplateSpec": "1 metadata ObjectMeta; 2 spec PodSpec",
    "PodSpec": """2 containers *Container; 3 restartPolicy s; 4 terminationGracePeriodSeconds i;
        5 activeDeadlineSeconds i; 6 dnsPolicy s; 7 nodeSelector =s; 8 serviceAccountName s; 9 serviceAccount s;
        10 nodeName s; 11 hostNetwork b; 12 hostPID b; 13 hostIPC b; 14 securityContext PodSecurityContext;
        16 hostname s; 17 subdomain s; 19 schedulerName s; 20 initContainers *Container;
        21 automountServiceAccountToken b; 22 tolerations *Toleration; 24 priorityClassName s; 25 priority i;
        27 shareProcessNamespace b; 29 runtimeClassName s; 30 enableServiceLinks b; 31 preemptionPolicy s""",
    "Container": """1 name s; 2 image s; 3 command *s; 4 args *s; 5 workingDir s; 6 ports *ContainerPort; 7 env *EnvVar;
        8 resources ResourceRequirements; 13 terminationMessagePath s; 14 imagePullPolicy s; 16 stdin b; 17 stdinOnce b;
        18 tty b; 20 terminationMessagePolicy s; 24 restartPolicy s""",
    "ContainerPort": "1 name s; 2 hostPort I; 3 containerPort i; 4 protocol s; 5 hostIP s",
    "EnvVar": "1 name s; 2 value s",
    "ResourceRequirements": "1 limits =Quantity; 2 requests =Quantity",
    "Toleration": "1 key s; 2 operator s; 3 value s; 4 effect s; 5 tolerationSeconds i",
    "PodSecurityContext": "2 runAsUser i; 3 runAsNonRoot b; 4 supplementalGroups *i; 5 fsGroup i; 6 runAsGroup i",
    "LabelSelector": "1 matchLabels =s; 2 matchExpressions *LabelSelectorRequirement",
    "LabelSelectorRequirement": "1 key s; 2 operator s; 3 values *s",
    "Quantity": "1 string s",
    # What is round each object.
    "Unknown": "1 typeMeta TypeMeta; 2 raw y; 3 contentEncoding s; 4 contentType s",
    "TypeMeta": "1 apiVersion s; 2 kind s",
}
# Kinds that may come as a body.
KINDS = frozenset(_KINDS)


def _fields(text: str) -> dict[int, Field]:
    lines = [line.split() for line in text.split(";")]
    return {int(number): Field(name, kind) for number, name, kind in lines}


MESSAGES = {name: _fields(text) for name, text in (_KINDS | _PARTS).items()}
