// Package deploy renders the chart of deploy/ with Helm's library, and holds what comes out to the validation of Kubernetes' own API server, to
// published CRDs and types, and to karat serve itself.
package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	autoscalingvalidation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	podsecurity "k8s.io/pod-security-admission/api"
	podpolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var (
	update = flag.Bool("update", false, "write deploy/kustomize/base anew")
	crds   = flag.String("crds", "", "folder of more CRDs, of projects whose modules have none: InferencePool, ClusterServingRuntime, PodMonitor")
)

const root = "../.."

// cases are settings of the chart, and the kinds that come out.
var cases = map[string]struct{ values, kinds string }{
	"default": {"", "Deployment NetworkPolicy PodDisruptionBudget Service"},
	"image": {`
args: [--ctx, 512, --parallel, 2]
env: [{name: KARAT_SERVE_MAX_REQUESTS, value: "64"}]
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
model: {source: image, name: small, path: sub/model.gguf, image: {reference: "registry.example/models/small:1"}}
apiKeys: {secretName: karat-keys}
metricsKey: {secretName: karat-metrics}
hpa: {enabled: true}
podMonitor: {enabled: true, labels: {release: prometheus}}
inferencePool: {enabled: true, picker: {name: picker}}
httpRoute: {enabled: true, parentRefs: [{name: gateway}], hostnames: [models.example]}
networkPolicy: {from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: gateways}}}]}
podLabels: {tier: small}
nodeSelector: {kubernetes.io/arch: amd64}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app.kubernetes.io/name: karat}}}]
`, "Deployment HTTPRoute HorizontalPodAutoscaler InferencePool NetworkPolicy PodDisruptionBudget PodMonitor Service"},
	"store": {`
kind: StatefulSet
model: {source: pvc, pvc: {claimName: models}}
store: {enabled: true, storageClassName: fast}
keda: {enabled: true}
httpRoute: {enabled: true, parentRefs: [{name: gateway, namespace: infra}]}
podMonitor: {enabled: true}
`, "HTTPRoute NetworkPolicy PodDisruptionBudget PodMonitor ScaledObject Service Service StatefulSet"},
}

// render returns the chart's objects, each as YAML, in the order of kinds and names.
func render(t *testing.T, values string) (objects [][]byte, err error) {
	t.Helper()
	c, err := loader.Load(root + "/deploy/chart")
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	for name := range v {
		if _, ok := c.Values[name]; !ok {
			t.Fatalf("the chart has no value %s", name)
		}
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "karat", Namespace: "models", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := (engine.Engine{Strict: true}).Render(c, all)
	if err != nil {
		return nil, err
	}
	for _, text := range files {
		for _, doc := range strings.Split("\n"+text, "\n---\n") {
			if strings.TrimSpace(doc) != "" {
				objects = append(objects, []byte(strings.TrimSpace(doc)+"\n"))
			}
		}
	}
	slices.SortFunc(objects, func(a, b []byte) int { return strings.Compare(nameOf(t, a), nameOf(t, b)) })
	return objects, nil
}

// header is what all objects have.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

func headerOf(t *testing.T, object []byte) (h header) {
	t.Helper()
	if err := yaml.Unmarshal(object, &h); err != nil {
		t.Fatalf("%v:\n%s", err, object)
	}
	return h
}

func nameOf(t *testing.T, object []byte) string {
	h := headerOf(t, object)
	return h.Kind + " " + h.Metadata.Name
}

// TestChart: what the chart renders has the wanted kinds, and each object is valid.
func TestChart(t *testing.T) {
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := render(t, x.values)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, o := range objects {
				kinds = append(kinds, headerOf(t, o).Kind)
				for _, e := range check(t, o) {
					t.Errorf("%s: %s", nameOf(t, o), e)
				}
			}
			if got := strings.Join(kinds, " "); got != x.kinds {
				t.Errorf("kinds %s, want %s", got, x.kinds)
			}
			if t.Failed() {
				t.Logf("%s", bytes.Join(objects, []byte("---\n")))
			}
		})
	}
}

// TestFaults: settings that contradict each other are refused by the chart, and objects with faults by the checks.
func TestFaults(t *testing.T) {
	for values, want := range map[string]string{
		"hpa: {enabled: true}\nkeda: {enabled: true}": "one of them",
		"kind: DaemonSet":                "Deployment or StatefulSet",
		"store: {enabled: true}":         "must be StatefulSet",
		"model: {source: s3}":            "demo, image or pvc",
		"model: {source: image}":         "model.image.reference is empty",
		"model: {source: pvc}":           "model.pvc.claimName is empty",
		"model: {path: x.gguf}":          "the demo is inside the program",
		"model: {image: {reference: a}}": "model.image.reference: model.source is demo",
		"model: {source: image, image: {reference: a}, pvc: {claimName: a}}": "model.pvc.claimName: model.source is image",
		"hpa: {enabled: true, maxReplicas: 1}":                               "hpa.minReplicas is over maxReplicas",
		"keda: {enabled: true, minReplicas: 11}":                             "keda.minReplicas is over maxReplicas",
		"args: [--ctx, 9, --port=9000]":                                      "args: --port follows from other values",
		"args: [--no-api-key]":                                               "args: --no-api-key follows from other values",
		"podLabels: {app.kubernetes.io/name: a}":                             "podLabels: app.kubernetes.io/name is the chart's own",
		"inferencePool: {enabled: true}":                                     "inferencePool.picker.name is empty",
		"httpRoute: {enabled: true}":                                         "httpRoute.parentRefs is empty",
		"apiKeys: {secretName: a}\npodMonitor: {enabled: true}":              "metricsKey.secretName is empty",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", values, err, want)
		}
	}
	objects := map[string][]byte{}
	for _, x := range cases {
		all, err := render(t, x.values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			objects[headerOf(t, o).Kind] = o
		}
	}
	for _, x := range []struct{ kind, old, new, want string }{
		{"Deployment", "terminationGracePeriodSeconds", "terminationGraceSeconds", "unknown field"},
		{"Deployment", "name: tmp, mountPath", "name: tmq, mountPath", "Not found"},
		{"Deployment", "mountPath: /models", "mountPath: /tmp", "must be unique"},
		{"Deployment", "runAsNonRoot: true", "runAsNonRoot: false", "restricted"},
		{"Deployment", "app.kubernetes.io/instance: karat", "app.kubernetes.io/instance: karat!", "a valid label must"},
		{"StatefulSet", "accessModes: [ReadWriteOnce]", "accessModes: [ReadWriteTwice]", "supported values"},
		{"Service", "targetPort: http", "targetPort: http_port", "alpha-numeric characters"},
		{"HorizontalPodAutoscaler", "minReplicas: 2", "minReplicas: 20", "must be greater than or equal to `minReplicas`"},
		{"PodDisruptionBudget", "maxUnavailable: 1", "maxUnavailable: -1", "greater than or equal to 0"},
		{"NetworkPolicy", "protocol: TCP", "protocol: HTTP", "supported values"},
		{"ScaledObject", "maxReplicaCount: 10", "maxReplicaCount: ten", "must be of type integer"},
		{"ScaledObject", "cooldownPeriod", "coolDownPeriod", "unknown field"},
		{"HTTPRoute", "type: PathPrefix", "type: Prefix", "Unsupported value"},
		{"HTTPRoute", "request: 600s", "request: 10minutes", "should match"},
		{"HTTPRoute", "value: /", "value: models", "an absolute path"},
		{"PodMonitor", "interval:", "every:", "unknown field"},
		{"InferencePool", "targetPorts", "targetPort", "unknown field"},
	} {
		broken := strings.Replace(string(objects[x.kind]), x.old, x.new, 1)
		if broken == string(objects[x.kind]) {
			t.Errorf("%s has no %q", x.kind, x.old)
			continue
		}
		if got := strings.Join(check(t, []byte(broken)), "; "); !strings.Contains(got, x.want) {
			t.Errorf("%s with %q: %q, want %q", x.kind, x.new, got, x.want)
		}
	}
}

// check returns the faults of an object.
func check(t *testing.T, object []byte) []string {
	t.Helper()
	switch h := headerOf(t, object); {
	case definitions(t)[h.APIVersion+" "+h.Kind] != nil:
		return checkCustom(t, definitions(t)[h.APIVersion+" "+h.Kind], object)
	case h.Kind == "PodMonitor":
		return strict(object, &monitoring.PodMonitor{})
	case h.Kind == "InferencePool":
		return strict(object, &inferencePool{})
	case h.Kind == "ClusterServingRuntime":
		return strict(object, &servingRuntime{})
	}
	return checkCore(t, object)
}

// strict returns the error of an object with unknown or wrong fields.
func strict(object []byte, into any) []string {
	if err := yaml.UnmarshalStrict(object, into); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// inferencePool has the fields of inference.networking.k8s.io/v1; the project's module cannot be had, -crds holds it to the project's CRD.
type inferencePool struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		AppProtocol string `json:"appProtocol"`
		Selector    struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		TargetPorts []struct {
			Number int32 `json:"number"`
		} `json:"targetPorts"`
		EndpointPickerRef struct {
			Group string `json:"group"`
			Kind  string `json:"kind"`
			Name  string `json:"name"`
			Port  struct {
				Number int32 `json:"number"`
			} `json:"port"`
			FailureMode string `json:"failureMode"`
		} `json:"endpointPickerRef"`
	} `json:"spec"`
}

// servingRuntime has the fields of serving.kserve.io/v1alpha1 that deploy/kserve uses; likewise.
type servingRuntime struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		Annotations           map[string]string `json:"annotations"`
		SupportedModelFormats []struct {
			Name       string `json:"name"`
			Version    string `json:"version"`
			AutoSelect bool   `json:"autoSelect"`
			Priority   int32  `json:"priority"`
		} `json:"supportedModelFormats"`
		Containers []corev1.Container `json:"containers"`
	} `json:"spec"`
}

// codecs refuse unknown and doubled fields, and set defaults.
var codecs = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)

// checkCore validates an object as the API server does at its creation.
func checkCore(t *testing.T, object []byte) []string {
	t.Helper()
	capabilities.Initialize(capabilities.Capabilities{})
	o, _, err := codecs.UniversalDecoder().Decode(object, nil, nil)
	if err != nil {
		return []string{err.Error()}
	}
	var errs field.ErrorList
	var found []string
	restricted := func() {
		var pod struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(object, &pod); err != nil {
			t.Fatal(err)
		}
		found = append(found, checkRestricted(t, pod.Spec.Template)...)
	}
	switch o := o.(type) {
	case *apps.Deployment:
		o.Namespace = "models"
		errs = appsvalidation.ValidateDeployment(o, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
		restricted()
	case *apps.StatefulSet:
		o.Namespace = "models"
		errs = appsvalidation.ValidateStatefulSet(o, appsvalidation.StatefulSetValidationOptions{}, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
		restricted()
	case *core.Pod:
		o.Namespace = "models"
		errs = corevalidation.ValidatePodCreate(o, podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil))
	case *core.Service:
		o.Namespace = "models"
		if o.Spec.ClusterIP != "" { // the server fills in the list
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		errs = corevalidation.ValidateServiceCreate(o)
	case *autoscaling.HorizontalPodAutoscaler:
		o.Namespace = "models"
		errs = autoscalingvalidation.ValidateHorizontalPodAutoscaler(o, autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions{MinReplicasLowerBound: 1})
	case *policy.PodDisruptionBudget:
		errs = policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *networking.NetworkPolicy:
		o.Namespace = "models"
		errs = networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.NetworkPolicyValidationOptions{})
	default:
		return []string{fmt.Sprintf("no check of %T", o)}
	}
	for _, e := range errs {
		found = append(found, e.Error())
	}
	return found
}

// checkRestricted holds a pod to the standard "restricted" of Kubernetes' pod security.
func checkRestricted(t *testing.T, pod corev1.PodTemplateSpec) (found []string) {
	t.Helper()
	e, err := podpolicy.NewEvaluator(podpolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range e.EvaluatePod(podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		if !r.Allowed {
			found = append(found, "restricted: "+r.ForbiddenReason+": "+r.ForbiddenDetail)
		}
	}
	return found
}

// modules are the sources of CRDs: folders of modules, by their sums. Nothing of them is compiled.
var modules = map[string][2]string{
	"github.com/kedacore/keda/v2@v2.21.0": {"config/crd/bases", "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps="},
	"sigs.k8s.io/gateway-api@v1.6.3":      {"config/crd/standard", "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc="},
}

var defined map[string]*extensionsv1.CustomResourceDefinition

// definitions returns the CRDs by version and kind.
func definitions(t *testing.T) map[string]*extensionsv1.CustomResourceDefinition {
	t.Helper()
	if defined != nil {
		return defined
	}
	var folders []string
	for name, m := range modules {
		out, err := exec.Command("go", "mod", "download", "-json", name).Output()
		if err != nil {
			t.Fatalf("%s: %v %s", name, err, out)
		}
		var got struct{ Dir, Sum string }
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		if got.Sum != m[1] {
			t.Fatalf("%s has the sum %s, want %s", name, got.Sum, m[1])
		}
		folders = append(folders, filepath.Join(got.Dir, m[0]))
	}
	if *crds != "" {
		folders = append(folders, *crds)
	}
	defined = map[string]*extensionsv1.CustomResourceDefinition{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no CRDs: %v", folder, err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var d extensionsv1.CustomResourceDefinition
			if err := yaml.Unmarshal(data, &d); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			for _, v := range d.Spec.Versions {
				defined[d.Spec.Group+"/"+v.Name+" "+d.Spec.Names.Kind] = &d
			}
		}
	}
	return defined
}

// checkCustom validates an object of a CRD: its schema, unknown fields, and its rules in CEL.
func checkCustom(t *testing.T, d *extensionsv1.CustomResourceDefinition, object []byte) (found []string) {
	t.Helper()
	_, version, _ := strings.Cut(headerOf(t, object).APIVersion, "/")
	for _, v := range d.Spec.Versions {
		if v.Name != version {
			continue
		}
		var props apiextensions.JSONSchemaProps
		if err := extensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &props, nil); err != nil {
			t.Fatal(err)
		}
		structural, err := schema.NewStructural(&props)
		if err != nil {
			t.Fatal(err)
		}
		validator, _, err := crdvalidation.NewSchemaValidator(&props)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.YAMLToJSONStrict(object)
		if err != nil {
			return []string{err.Error()}
		}
		var o map[string]any
		if err := utiljson.Unmarshal(text, &o); err != nil { // whole numbers are int64
			return []string{err.Error()}
		}
		unknown := pruning.PruneWithOptions(o, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		for _, u := range unknown {
			found = append(found, "unknown field "+u)
		}
		defaulting.Default(o, structural)
		for _, e := range crdvalidation.ValidateCustomResource(nil, o, validator) {
			found = append(found, e.Error())
		}
		if c := cel.NewValidator(structural, true, 10000000); c != nil {
			errs, _ := c.Validate(t.Context(), nil, structural, o, nil, 100000000)
			for _, e := range errs {
				found = append(found, e.Error())
			}
		}
		return found
	}
	return []string{"the CRD has no version " + version}
}

// TestKustomize: the base is what the chart renders without settings, and kustomize builds valid objects of the base and the overlay.
func TestKustomize(t *testing.T) {
	objects, err := render(t, "")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	list := "# Written by go -C deploy/testdata test . -update: the chart's objects, without settings.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
	for _, o := range objects {
		name := strings.ToLower(headerOf(t, o).Kind) + ".yaml"
		files[name] = o
		list += "  - " + name + "\n"
	}
	files["kustomization.yaml"] = []byte(list)
	base := root + "/deploy/kustomize/base"
	if *update {
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(base, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	there, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if got, _ := os.ReadFile(filepath.Join(base, f.Name())); !bytes.Equal(got, files[f.Name()]) {
			t.Errorf("deploy/kustomize/base/%s differs from what the chart renders: -update writes it", f.Name())
		}
	}
	if len(there) != len(files) {
		t.Errorf("deploy/kustomize/base has %d files, want %d", len(there), len(files))
	}
	for _, dir := range []string{"base", "model-image"} {
		for _, o := range kustomized(t, dir) {
			for _, e := range check(t, o) {
				t.Errorf("%s, %s: %s", dir, nameOf(t, o), e)
			}
		}
	}
}

// kustomized returns the objects of a folder of deploy/kustomize.
func kustomized(t *testing.T, dir string) (objects [][]byte) {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), root+"/deploy/kustomize/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Resources() {
		o, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}

// TestVersions: the chart and KServe's runtime take the image of VERSION, and the module x the library.
func TestVersions(t *testing.T) {
	version, err := os.ReadFile(root + "/VERSION")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(string(version))
	c, err := loader.Load(root + "/deploy/chart")
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != want || c.Metadata.AppVersion != want {
		t.Errorf("the chart has the version %s of %s, VERSION says %s", c.Metadata.Version, c.Metadata.AppVersion, want)
	}
	if image := runtimeOf(t).Containers[0].Image; image != "ghcr.io/karat-run/karat:"+want {
		t.Errorf("KServe's runtime has the image %s", image)
	}
	if mod, err := os.ReadFile(root + "/x/go.mod"); !strings.Contains(string(mod), "\tgithub.com/karat-run/karat v"+want+"\n") {
		t.Errorf("x/go.mod requires another version than %s, %v", want, err)
	}
}

// runtimeOf returns KServe's runtime as the pod that KServe makes of it, for the service "small".
func runtimeOf(t *testing.T) *corev1.PodSpec {
	t.Helper()
	data, err := os.ReadFile(root + "/deploy/kserve/clusterservingruntime.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var r servingRuntime
	if err := yaml.UnmarshalStrict(bytes.ReplaceAll(data, []byte("{{.Name}}"), []byte("small")), &r); err != nil {
		t.Fatal(err)
	}
	return &corev1.PodSpec{Containers: r.Spec.Containers}
}

// TestServingRuntime: KServe's runtime is valid, and a pod of it is, by the standard "restricted".
func TestServingRuntime(t *testing.T) {
	data, err := os.ReadFile(root + "/deploy/kserve/clusterservingruntime.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := check(t, data)
	pod := corev1.Pod{Spec: *runtimeOf(t)}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", "small"
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	found = append(found, checkCore(t, text)...)
	found = append(found, checkRestricted(t, corev1.PodTemplateSpec{Spec: pod.Spec})...)
	for _, e := range found {
		t.Error(e)
	}
}

// podOf returns the pod of the objects' Deployment or StatefulSet.
func podOf(t *testing.T, objects [][]byte) *corev1.PodSpec {
	t.Helper()
	for _, o := range objects {
		switch headerOf(t, o).Kind {
		case "Deployment":
			var d appsv1.Deployment
			if err := yaml.UnmarshalStrict(o, &d); err != nil {
				t.Fatal(err)
			}
			return &d.Spec.Template.Spec
		case "StatefulSet":
			var s appsv1.StatefulSet
			if err := yaml.UnmarshalStrict(o, &s); err != nil {
				t.Fatal(err)
			}
			return &s.Spec.Template.Spec
		}
	}
	t.Fatal("no Deployment and no StatefulSet")
	return nil
}
