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

{{- define "reo.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "reo.fullname" .) "default") -}}
{{- end -}}

{{- /* The first object of a file, with the release's name and labels: (dict "root" $ "file" "service.yaml"), and "name" for another name. */ -}}
{{- define "reo.object" -}}
{{- $thing := .root.Files.Get (printf "files/%s" .file) | splitList "\n---\n" | first | fromYaml -}}
{{- $labels := pick ($thing.metadata.labels | default dict) "app.kubernetes.io/component" -}}
{{- $_ := set $thing "metadata" (dict "name" (.name | default (include "reo.fullname" .root)) "labels" (merge $labels (include "reo.labels" .root | fromYaml))) -}}
{{- toYaml $thing -}}
{{- end -}}

{{- /* A file with a secret setting: its folder has the setting's name. */ -}}
{{- define "reo.secretVolume" -}}
{{ printf "secret-%s" (. | replace "." "-" | replace "_" "-") }}
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
{{- $_ := set $thing.spec "serviceName" $fullname -}}
{{- with $values.updateStrategy -}}{{- $_ := set $thing.spec "updateStrategy" . -}}{{- end -}}
{{- end -}}

{{- $annotations := dict "checksum/settings" (toJson $values.settings | sha256sum) -}}
{{- if not $values.serviceMonitor.enabled -}}
{{- $annotations = merge $annotations ($thing.spec.template.metadata.annotations | default dict) -}}
{{- end -}}
{{- $labels := merge (dict) $selector $values.podLabels (include "reo.labels" $root | fromYaml) -}}
{{- $_ := set $thing.spec.template "metadata" (dict "labels" $labels "annotations" (merge (dict) $values.podAnnotations $annotations)) -}}

{{- $pod := $thing.spec.template.spec -}}
{{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" "terminationGracePeriodSeconds" -}}
{{- with index $values $key -}}{{- $_ := set $pod $key . -}}{{- end -}}
{{- end -}}
{{- with $values.podSecurityContext -}}{{- $_ := set $pod "securityContext" . -}}{{- end -}}
{{- if or $values.serviceAccount.create $values.serviceAccount.name -}}
{{- $_ := set $pod "serviceAccountName" (include "reo.serviceAccount" $root) -}}
{{- end -}}
{{- range $pod.topologySpreadConstraints -}}
{{- if not (and $values.topologySpreadConstraints .labelSelector) -}}{{- $_ := set . "labelSelector" (dict "matchLabels" $selector) -}}{{- end -}}
{{- end -}}
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
{{- $tag := $values.image.tag | default $root.Chart.AppVersion -}}
{{- $_ := set $container "image" (printf "%s%s%s" $values.image.repository (hasPrefix "sha256:" $tag | ternary "@" ":") $tag) -}}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy -}}
{{- $_ := unset $container "envFrom" -}}
{{- range $container.env -}}{{- if eq .name "REO_INSTANCE" -}}{{- $env = prepend $env . -}}{{- end -}}{{- end -}}
{{- $_ := set $container "env" (concat $env $values.env) -}}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts $mounts $values.volumeMounts) -}}
{{- with $values.securityContext -}}{{- $_ := set $container "securityContext" . -}}{{- end -}}
{{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" -}}
{{- $_ := set $container $probe (mergeOverwrite (index $container $probe) (index $values $probe | default dict)) -}}
{{- end -}}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources (index $root.Values.resources .component)) -}}
{{- toYaml $thing -}}
{{- end -}}
