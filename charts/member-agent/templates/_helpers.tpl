{{- define "member-agent.name" -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "member-agent.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "member-agent.name" .) }}
{{- end }}

{{/* Names of cluster-scoped objects carry the namespace: two releases may have one name. */}}
{{- define "member-agent.clusterRole" -}}
{{ printf "%s-%s" .Release.Namespace (include "member-agent.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "member-agent.selectorLabels" -}}
app.kubernetes.io/name: member-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "member-agent.labels" -}}
{{ include "member-agent.selectorLabels" . }}
app.kubernetes.io/part-of: fleet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
