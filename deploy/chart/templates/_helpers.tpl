{{- define "karat.name" -}}
{{- if contains "karat" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-karat" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "karat.selector" -}}
app.kubernetes.io/name: karat
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "karat.labels" -}}
{{ include "karat.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "karat.metadata" -}}
name: {{ include "karat.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "karat.labels" . | nindent 2 }}
{{- end }}

{{- define "karat.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "karat.check" -}}
{{- if and .Values.hpa.enabled .Values.keda.enabled }}{{ fail "hpa.enabled and keda.enabled: one of them" }}{{ end }}
{{- if not (has .Values.kind (list "Deployment" "StatefulSet")) }}{{ fail (printf "kind %q: Deployment or StatefulSet" .Values.kind) }}{{ end }}
{{- if and .Values.store.enabled (ne .Values.kind "StatefulSet") }}{{ fail "store.enabled: each replica needs a folder of its own, so kind must be StatefulSet" }}{{ end }}
{{- if not (has .Values.model.source (list "demo" "image" "pvc")) }}{{ fail (printf "model.source %q: demo, image or pvc" .Values.model.source) }}{{ end }}
{{- if and (eq .Values.model.source "image") (not .Values.model.image.reference) }}{{ fail "model.image.reference is empty" }}{{ end }}
{{- if and (eq .Values.model.source "pvc") (not .Values.model.pvc.claimName) }}{{ fail "model.pvc.claimName is empty" }}{{ end }}
{{- if and .Values.model.image.reference (ne .Values.model.source "image") }}{{ fail (printf "model.image.reference: model.source is %s" .Values.model.source) }}{{ end }}
{{- if and .Values.model.pvc.claimName (ne .Values.model.source "pvc") }}{{ fail (printf "model.pvc.claimName: model.source is %s" .Values.model.source) }}{{ end }}
{{- range $scaler := list "hpa" "keda" }}{{ with index $.Values $scaler }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}{{ fail (printf "%s.minReplicas is over maxReplicas" $scaler) }}{{ end }}
{{- end }}{{ end }}
{{- range .Values.args }}{{ $flag := regexFind "^--?[^=]*" (toString .) | trimAll "-" }}
{{- if has $flag (list "host" "port" "unix" "api-key-file" "no-api-key" "store") }}{{ fail (printf "args: --%s follows from other values of the chart" $flag) }}{{ end }}
{{- end }}
{{- range $key, $_ := .Values.podLabels }}
{{- if hasPrefix "app.kubernetes.io/" $key }}{{ fail (printf "podLabels: %s is the chart's own" $key) }}{{ end }}
{{- end }}
{{- if and (eq .Values.model.source "demo") .Values.model.path }}{{ fail "model.path: the demo is inside the program, so model.source must be image or pvc" }}{{ end }}
{{- if and .Values.inferencePool.enabled (not .Values.inferencePool.picker.name) }}{{ fail "inferencePool.picker.name is empty: the Service of the endpoint picker" }}{{ end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}{{ fail "httpRoute.parentRefs is empty: the Gateway" }}{{ end }}
{{- if and .Values.apiKeys.secretName .Values.podMonitor.enabled (not .Values.metricsKey.secretName) }}{{ fail "metricsKey.secretName is empty: with apiKeys, Prometheus needs one of the keys for /metrics" }}{{ end }}
{{- end }}

{{- define "karat.args" -}}
- --host
- 0.0.0.0
- --port
- "8080"
- --log-format
- json
{{- if .Values.apiKeys.secretName }}
- --api-key-file
- /keys/keys
{{- else }}
- --no-api-key
{{- end }}
{{- if .Values.store.enabled }}
- --store
- /store
{{- end }}
{{- with .Values.model.name }}
- --alias
- {{ . | quote }}
{{- end }}
{{- range .Values.args }}
- {{ . | toString | quote }}
{{- end }}
{{- if ne .Values.model.source "demo" }}
- --no-pull
- {{ printf "/models/%s" (.Values.model.path | trimPrefix "/") | trimSuffix "/" | quote }}
{{- end }}
{{- end }}
