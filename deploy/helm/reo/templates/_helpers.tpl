{{- define "reo.name" -}}
{{- .Values.nameOverride | default "reo" -}}
{{- end -}}

{{- /* The objects' name. It begins with "reo": alerts and dashboard look for jobs that do, and the job has the Service's name. */ -}}
{{- define "reo.fullname" -}}
{{- $name := include "reo.name" . -}}
{{- .Values.fullnameOverride | default (hasPrefix $name .Release.Name | ternary .Release.Name (printf "%s-%s" $name .Release.Name)) | trunc 39 | trimSuffix "-" -}}
{{- end -}}

{{- define "reo.selector" -}}
app.kubernetes.io/name: {{ include "reo.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "reo.labels" -}}
{{ include "reo.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Of all pods; empty: the namespace's own. With executors there is one, which may start them. */ -}}
{{- define "reo.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (or .Values.serviceAccount.create .Values.executors.enabled | ternary (include "reo.fullname" .) "") -}}
{{- end -}}

{{- define "reo.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- printf "%s%s%s" .Values.image.repository (hasPrefix "sha256:" $tag | ternary "@" ":") $tag -}}
{{- end -}}

{{- /* An object of a file, with the release's name and labels: (dict "root" $ "file" "service.yaml"), "name" for another name, "at" for another object than the first. */ -}}
{{- define "reo.object" -}}
{{- $things := .root.Files.Get (printf "files/%s" .file) | splitList "\n---\n" -}}
{{- $thing := index $things (.at | default 0) | fromYaml -}}
{{- $labels := pick ($thing.metadata.labels | default dict) "app.kubernetes.io/component" -}}
{{- $_ := set $thing "metadata" (dict "name" (.name | default (include "reo.fullname" .root)) "labels" (merge $labels (include "reo.labels" .root | fromYaml))) -}}
{{- toYaml $thing -}}
{{- end -}}

{{- /* A file with a secret setting: its folder has the setting's name. */ -}}
{{- define "reo.secretVolume" -}}
{{ printf "secret-%s" (. | replace "." "-" | replace "_" "-") }}
{{- end -}}

{{- /* Sets in "pod", which "selector" finds, where it runs and as whom. What no value says is the manifest's. */ -}}
{{- define "reo.placePod" -}}
{{- $pod := .pod -}}{{- $values := .values -}}{{- $selector := .selector -}}
{{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" -}}
{{- with index $values $key -}}{{- $_ := set $pod $key . -}}{{- end -}}
{{- end -}}
{{- range $pod.topologySpreadConstraints -}}
{{- if not (and $values.topologySpreadConstraints .labelSelector) -}}{{- $_ := set . "labelSelector" (dict "matchLabels" $selector) -}}{{- end -}}
{{- end -}}
{{- with $values.podSecurityContext -}}{{- $_ := set $pod "securityContext" . -}}{{- end -}}
{{- with $values.securityContext -}}{{- $_ := set (first $pod.containers) "securityContext" . -}}{{- end -}}
{{- end -}}

{{- /* What Spark makes executor pods from. Their name is not the other pods': no Service and no workload selects them. */ -}}
{{- define "reo.executorPod" -}}
{{- $values := mergeOverwrite (deepCopy .Values) (deepCopy .Values.executors) -}}
{{- $thing := .Files.Get "files/executor-pod.yaml" | fromYaml -}}
{{- $selector := merge (dict "app.kubernetes.io/instance" .Release.Name) $thing.metadata.labels -}}
{{- $labels := merge (dict) $selector $values.podLabels (include "reo.labels" . | fromYaml) -}}
{{- $_ := set $thing "metadata" (dict "labels" $labels "annotations" $values.podAnnotations) -}}
{{- include "reo.placePod" (dict "pod" $thing.spec "values" $values "selector" $selector) -}}
{{- toYaml $thing -}}
{{- end -}}

{{- /* Variables by which Spark asks for them: the manifest's, for this image and with this template. */ -}}
{{- define "reo.executorOptions" -}}
{{- if dig "replicator" "master" "" .Values.settings -}}
{{- fail "settings.replicator.master and executors.enabled: both say where stage one's tasks run; take one of them away" -}}
{{- end -}}
{{- $option := "REO_REPLICATOR_SPARK_OPTIONS_spark_kubernetes_" -}}
{{- $options := list (dict "name" (printf "%sexecutor_podTemplateFile" $option) "value" "/settings/executor-pod.yaml") -}}
{{- $options = append $options (dict "name" (printf "%scontainer_image_pullPolicy" $option) "value" .Values.image.pullPolicy) -}}
{{- range .Files.Get "files/executor-options.yaml" | fromYamlArray -}}
{{- if hasSuffix "/env/-" .path -}}
{{- if hasSuffix "_container_image" .value.name -}}{{- $_ := set .value "value" (include "reo.image" $) -}}{{- end -}}
{{- $options = append $options .value -}}
{{- end -}}
{{- end -}}
{{- toYaml $options -}}
{{- end -}}

{{- /* The files in /settings. JSON, because a number of seven digits in YAML becomes 1e+06 here. */ -}}
{{- define "reo.files" -}}
reo.json: |
  {{- toPrettyJson .Values.settings | nindent 2 }}
{{- if .Values.executors.enabled }}
executor-pod.yaml: |
  {{- include "reo.executorPod" . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* A Deployment or StatefulSet: (dict "root" $ "component" "replicator"). What no value says is the manifest's. */ -}}
{{- define "reo.workload" -}}
{{- $root := .root -}}
{{- $values := mergeOverwrite (deepCopy $root.Values) (deepCopy (index $root.Values .component | default dict)) -}}
{{- $fullname := include "reo.fullname" $root -}}
{{- $name := eq .component "reo" | ternary $fullname (printf "%s-%s" $fullname .component) -}}
{{- $thing := include "reo.object" (dict "root" $root "file" (printf "%s.yaml" .component) "name" $name) | fromYaml -}}
{{- $selector := merge (dict "app.kubernetes.io/component" .component) (include "reo.selector" $root | fromYaml) -}}
{{- $_ := set $thing.spec "selector" (dict "matchLabels" $selector) -}}
{{- with $values.annotations -}}{{- $_ := set $thing.metadata "annotations" . -}}{{- end -}}
{{- if eq $thing.kind "StatefulSet" -}}
{{- $_ := set $thing.spec "replicas" $values.replicas -}}
{{- if $values.autoscaling.enabled -}}{{- $_ := unset $thing.spec "replicas" -}}{{- end -}}
{{- $_ := set $thing.spec "serviceName" $fullname -}}
{{- with $values.updateStrategy -}}{{- $_ := set $thing.spec "updateStrategy" . -}}{{- end -}}
{{- end -}}

{{- $annotations := dict "checksum/settings" (include "reo.files" $root | sha256sum) -}}
{{- if not $values.serviceMonitor.enabled -}}
{{- $annotations = merge $annotations ($thing.spec.template.metadata.annotations | default dict) -}}
{{- end -}}
{{- $labels := merge (dict) $selector $values.podLabels (include "reo.labels" $root | fromYaml) -}}
{{- $_ := set $thing.spec.template "metadata" (dict "labels" $labels "annotations" (merge (dict) $values.podAnnotations $annotations)) -}}

{{- $pod := $thing.spec.template.spec -}}
{{- include "reo.placePod" (dict "pod" $pod "values" $values "selector" $selector) -}}
{{- with $values.terminationGracePeriodSeconds -}}{{- $_ := set $pod "terminationGracePeriodSeconds" . -}}{{- end -}}
{{- with include "reo.serviceAccount" $root -}}{{- $_ := set $pod "serviceAccountName" . -}}{{- end -}}
{{- $volumes := append $pod.volumes (dict "name" "settings" "configMap" (dict "name" $fullname)) -}}
{{- $mounts := list (dict "name" "settings" "mountPath" "/settings" "readOnly" true) -}}
{{- $env := list (dict "name" "REO_SETTINGS_FILE" "value" "/settings/reo.json") -}}
{{- range $setting, $secret := $values.secrets -}}
{{- $volume := include "reo.secretVolume" $setting -}}
{{- $items := list (dict "key" $secret.key "path" "value") -}}
{{- $volumes = append $volumes (dict "name" $volume "secret" (dict "secretName" $secret.name "items" $items)) -}}
{{- $mounts = append $mounts (dict "name" $volume "mountPath" (printf "/secrets/%s" $setting) "readOnly" true) -}}
{{- $env = append $env (dict "name" (printf "REO_%s_FILE" ($setting | upper | replace "." "_")) "value" (printf "/secrets/%s/value" $setting)) -}}
{{- end -}}
{{- $_ := set $pod "volumes" (concat $volumes $values.volumes) -}}

{{- $container := first $pod.containers -}}
{{- $_ := set $container "image" (include "reo.image" $root) -}}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy -}}
{{- $_ := unset $container "envFrom" -}}
{{- range $container.env -}}{{- if eq .name "REO_INSTANCE" -}}{{- $env = prepend $env . -}}{{- end -}}{{- end -}}
{{- if and $values.executors.enabled (ne .component "deduplicator") -}}
{{- $_ := set $pod "automountServiceAccountToken" true -}}
{{- $env = include "reo.executorOptions" $root | fromYamlArray | concat $env -}}
{{- end -}}
{{- $_ := set $container "env" (concat $env $values.env) -}}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts $mounts $values.volumeMounts) -}}
{{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" -}}
{{- $_ := set $container $probe (mergeOverwrite (index $container $probe) (index $values $probe | default dict)) -}}
{{- end -}}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources (index $root.Values.resources .component)) -}}
{{- toYaml $thing -}}
{{- end -}}
