{{- /* What templates share. */ -}}

{{- /* Nothing, where namespace and domain can be Aliquot's. It guards what it writes there, and its removal takes all of it:
of Kubernetes' own namespaces and names the cluster would stop, of others' theirs. Helm sees no cluster when it renders,
so the domains of those who write on GPU nodes are named here; what is below them is theirs too. */ -}}
{{- define "placed" -}}
{{- if or (hasPrefix "kube-" .Release.Namespace) (eq .Release.Namespace "default") }}
{{- fail (printf "the namespace %s is Kubernetes' own or everybody's: Aliquot guards its Leases and is taken away with its namespace; choose one for it alone, such as --namespace aliquot-system" .Release.Namespace) }}
{{- end }}
{{- range list "kubernetes.io" "k8s.io" "x-k8s.io" "nvidia.com" "amd.com" "intel.com" "habana.ai" "cert-manager.io" "coreos.com" "volcano.sh" "project-hami.io" "run.ai" }}
{{- if or (eq $.Values.domain .) (hasSuffix (printf ".%s" .) $.Values.domain) }}
{{- fail (printf "domain is %s, and names of %s are others': Aliquot's guards would refuse what their owners write; choose one of your own, or aliquot.dev" $.Values.domain .) }}
{{- end }}
{{- end }}
{{- end }}
{{- /* The environment by which a process is told names other than the usual, and settings. */ -}}
{{- define "settings" -}}
{{- if ne .root.Values.domain "aliquot.dev" }}
- {name: ALIQUOT_NAMES_DOMAIN, value: {{ .root.Values.domain | quote }}}
{{- end }}
{{- if ne .root.Release.Namespace "aliquot-system" }}
- {name: ALIQUOT_NAMES_NAMESPACE, value: {{ .root.Release.Namespace | quote }}}
{{- end }}
{{- range $section, $entries := .settings }}
{{- range $name, $value := $entries }}
- name: ALIQUOT_{{ upper $section }}_{{ upper $name }}
  {{- if and (kindIs "slice" $value) (kindIs "map" (first (concat $value (list "")))) }}
  value: {{ toJson $value | quote }}
  {{- else if kindIs "float64" $value }}
  {{- /* As Helm reads every number of a file; written otherwise, a million is 1e+06. */}}
  value: {{ toJson $value | quote }}
  {{- else }}
  value: {{ kindIs "slice" $value | ternary (join "," $value) $value | toString | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- /* The profile to which the webhook gives pods: one name for the setting and for the kube-scheduler that has it. */ -}}
{{- define "profile" -}}
{{- $profile := dig "admission" "scheduler_name" "aliquot" .Values.centre.settings }}
{{- if and .Values.kubeScheduler.enabled (eq $profile "default-scheduler") }}
{{- fail "centre.settings.admission.scheduler_name is default-scheduler: our kube-scheduler would take every pod of the cluster beside its own; choose another name, or set kubeScheduler.enabled to false and give the cluster's own the extender" }}
{{- end }}
{{- $profile -}}
{{- end }}
{{- define "pulling" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- /* Whether MPS is to share a GPU somewhere: not empty, if so. */}}
{{- define "mps" }}
{{- if or (eq .Values.node.isolation "mps") (hasSuffix "=mps" (join "," .Values.node.isolationOf)) (contains "=mps," (join "," .Values.node.isolationOf)) }}yes{{ end }}
{{- end }}
{{- /* Whether accounts of interposed containers are to lie on a file system of their own: not empty, if so. */}}
{{- define "accounts" }}
{{- if and .Values.node.accountsMib (or (eq .Values.node.isolation "interposer") (contains "=interposer," (print (join "," .Values.node.isolationOf) ","))) (not .Values.node.simulatedGpus) }}yes{{ end }}
{{- end }}
{{- /* What mounts it, or takes it away: a container that ends. */}}
{{- define "room" }}
name: room
image: {{ .root.Values.images.node }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
args: [agent, {{ .flag }}]
env:
  - {name: ALIQUOT_AGENT_ISOLATION, value: interposer}
  - {name: ALIQUOT_AGENT_ACCOUNTS_MIB, value: {{ .root.Values.node.accountsMib | quote }}}
securityContext:
  # The kubelet lets nobody else's mounts out of a container.
  privileged: true
  runAsNonRoot: false
  runAsUser: 0
  runAsGroup: 0
  readOnlyRootFilesystem: true
volumeMounts:
  - {name: above-isolation, mountPath: /var/lib/aliquot, mountPropagation: Bidirectional}
{{- end }}
{{- /* In a policy: of a pod's status all is as it was, but for conditions, nomination and allocated resources. */}}
{{- define "pod-status-kept" }}
&& object.?status.?phase == oldObject.?status.?phase
&& object.?status.?reason == oldObject.?status.?reason
&& object.?status.?message == oldObject.?status.?message
&& object.?status.?podIP == oldObject.?status.?podIP
&& object.?status.?podIPs == oldObject.?status.?podIPs
&& object.?status.?hostIP == oldObject.?status.?hostIP
&& object.?status.?hostIPs == oldObject.?status.?hostIPs
&& object.?status.?startTime == oldObject.?status.?startTime
&& object.?status.?qosClass == oldObject.?status.?qosClass
&& object.?status.?containerStatuses == oldObject.?status.?containerStatuses
&& object.?status.?initContainerStatuses == oldObject.?status.?initContainerStatuses
&& object.?status.?ephemeralContainerStatuses == oldObject.?status.?ephemeralContainerStatuses
&& object.?status.?resourceClaimStatuses == oldObject.?status.?resourceClaimStatuses
&& object.?status.?extendedResourceClaimStatus == oldObject.?status.?extendedResourceClaimStatus
&& object.?status.?nodeAllocatableResourceClaimStatuses == oldObject.?status.?nodeAllocatableResourceClaimStatuses
&& object.?status.?observedGeneration == oldObject.?status.?observedGeneration
&& object.?status.?resize == oldObject.?status.?resize
&& object.?status.?resources == oldObject.?status.?resources
{{- end }}
{{- /* In a policy: whether a pod asks for a slice. A pod that is stored says so in its limits; until then in either. */}}
{{- define "asks" -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,
c.?resources.?limits.orValue({}).exists(r, r.startsWith('{{ .Values.domain }}/'))
|| c.?resources.?requests.orValue({}).exists(r, r.startsWith('{{ .Values.domain }}/')))
{{- end }}
{{- /* Of writes on pods and their status, those by which a kube-scheduler sends a victim away: it tells it first, by the
condition DisruptionTarget, then deletes it. Neither names the pod for which it is. Where the first is refused no condition
stays on a pod that lives, by which a Job would not count its next failure. */ -}}
{{- define "evicts" -}}
- name: a-kube-scheduler
  expression: >-
    request.userInfo.username in {{ toJson .Values.kubeSchedulerUsers | replace "\"" "'" }}
- name: evicts
  expression: >-
    request.operation == 'DELETE' || [object, oldObject].map(one, one.?status.?conditions.orValue([]).exists(c,
    c.type == 'DisruptionTarget' && c.status == 'True' && c.?reason.orValue('') == 'PreemptionByScheduler')) == [true, false]
{{- end }}
{{- /* Whether what a kube-scheduler evicts by priority is refused: one before 1.35 tries a refused victim again at once. */}}
{{- define "denies-evictions" -}}
{{- if or (eq .Values.evictionByPriority "Deny")
    (and (eq .Values.evictionByPriority "Auto") (semverCompare ">=1.35.0-0" .Capabilities.KubeVersion.Version)) -}}
true
{{- end }}
{{- end }}
