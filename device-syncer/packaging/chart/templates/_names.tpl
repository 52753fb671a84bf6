{{- define "device-syncer.labels" -}}
app.kubernetes.io/name: device-syncer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "device-syncer.settings" -}}
docker: {use: false}
helm: {program: /usr/bin/helm, kubeconfig: /etc/device-syncer/kubeconfig, context: pod}
{{- if .Values.secrets.deviceFiles }}
deviceFiles: /etc/device-files
{{- end }}
{{- with .Values.settings }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "device-syncer.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: home, mountPath: /var/lib/device-syncer}
  - {name: settings, mountPath: /var/lib/device-syncer/device.yaml, subPath: device.yaml, readOnly: true}
{{- end }}
