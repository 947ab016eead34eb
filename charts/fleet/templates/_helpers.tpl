{{- define "fleet.name" -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fleet.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "fleet.name" .) }}
{{- end }}

{{/* Names of cluster-scoped objects carry the namespace: two releases may have one name. */}}
{{- define "fleet.clusterRole" -}}
{{ printf "%s-%s" .Release.Namespace (include "fleet.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fleet.selectorLabels" -}}
app.kubernetes.io/name: fleet-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fleet.labels" -}}
{{ include "fleet.selectorLabels" . }}
app.kubernetes.io/part-of: fleet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The pods of `helm test` are none of the controller's: no budget, policy or monitor selects them. */}}
{{- define "fleet.testLabels" -}}
app.kubernetes.io/name: fleet-test
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Made before the pod of `helm test`, and removed after it. */}}
{{- define "fleet.testNeeds" -}}
helm.sh/hook: test
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}
