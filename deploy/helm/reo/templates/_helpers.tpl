{{- /* The objects' name. It begins with "reo": alerts and dashboard look for jobs that do, and the job has the Service's name. */ -}}
{{- define "reo.fullname" -}}
{{- hasPrefix "reo" .Release.Name | ternary .Release.Name (printf "reo-%s" .Release.Name) | trunc 39 | trimSuffix "-" -}}
{{- end -}}

{{- define "reo.selector" -}}
app.kubernetes.io/name: reo
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "reo.labels" -}}
{{ include "reo.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* An object of a file, with the release's name and labels: (dict "root" $ "file" "service.yaml"), and "name" for another name. */ -}}
{{- define "reo.object" -}}
{{- $thing := .root.Files.Get (printf "files/%s" .file) | fromYaml -}}
{{- $_ := set $thing "metadata" (dict "name" (.name | default (include "reo.fullname" .root)) "labels" (include "reo.labels" .root | fromYaml)) -}}
{{- toYaml $thing -}}
{{- end -}}

{{- /* A file with a secret setting: its folder has the setting's name. */ -}}
{{- define "reo.secretVolume" -}}
{{ printf "secret-%s" (. | replace "." "-" | replace "_" "-") }}
{{- end -}}

{{- /* A Deployment or StatefulSet: (dict "root" $ "component" "replicator"). Probes, security and strategy are the manifest's. */ -}}
{{- define "reo.workload" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $fullname := include "reo.fullname" $root -}}
{{- $name := eq .component "reo" | ternary $fullname (printf "%s-%s" $fullname .component) -}}
{{- $thing := include "reo.object" (dict "root" $root "file" (printf "%s.yaml" .component) "name" $name) | fromYaml -}}
{{- $selector := merge (dict "app.kubernetes.io/component" .component) (include "reo.selector" $root | fromYaml) -}}
{{- $_ := set $thing.spec "selector" (dict "matchLabels" $selector) -}}
{{- if eq $thing.kind "StatefulSet" -}}
{{- $_ := set $thing.spec "replicas" $values.deduplicator.replicas -}}
{{- $_ := set $thing.spec "serviceName" $fullname -}}
{{- end -}}

{{- $annotations := dict "checksum/settings" (toJson $values.settings | sha256sum) -}}
{{- if not $values.serviceMonitor.enabled -}}
{{- $annotations = merge $annotations ($thing.spec.template.metadata.annotations | default dict) -}}
{{- end -}}
{{- $_ := set $thing.spec.template "metadata" (dict "labels" (merge (dict) $selector (include "reo.labels" $root | fromYaml)) "annotations" (merge (dict) $values.podAnnotations $annotations)) -}}

{{- $pod := $thing.spec.template.spec -}}
{{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with index $values $key -}}{{- $_ := set $pod $key . -}}{{- end -}}
{{- end -}}
{{- range $pod.topologySpreadConstraints -}}{{- $_ := set . "labelSelector" (dict "matchLabels" $selector) -}}{{- end -}}
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
{{- $_ := set $container "resources" (mustMergeOverwrite (dict) $container.resources (index $values.resources .component)) -}}
{{- toYaml $thing -}}
{{- end -}}
