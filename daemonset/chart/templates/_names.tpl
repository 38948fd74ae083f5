{{- /* What templates share. */ -}}

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
  {{- else }}
  value: {{ kindIs "slice" $value | ternary (join "," $value) $value | toString | quote }}
  {{- end }}
{{- end }}
{{- end }}
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
