//! The real helm 4: a chart of many kinds from install to uninstall, and Fleet's own charts.
//!
//! helm is found by `FLEET_HELM`, else on the PATH; without it these tests say so and pass.

use fleet_apiserver::{Access, ApiServer, Config, ServeOptions, Server};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kinds of the chart and the resource each is asked for by.
const KINDS: [(&str, &str); 14] = [
    ("serviceaccounts", "demo"),
    ("configmaps", "demo"),
    ("secrets", "demo"),
    ("services", "demo"),
    ("persistentvolumeclaims", "demo"),
    ("roles", "demo"),
    ("rolebindings", "demo"),
    ("deployments", "demo"),
    ("statefulsets", "demo"),
    ("jobs", "demo"),
    ("cronjobs", "demo"),
    ("ingresses", "demo"),
    ("networkpolicies", "demo"),
    ("poddisruptionbudgets", "demo"),
];

const TEMPLATE: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}, labels: {app: demo}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}, labels: {app: demo}}
data: {size: {{ .Values.size | quote }}{{ if .Values.more }}, more: "yes"{{ end }}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}, labels: {app: demo}}
stringData: {password: {{ .Values.password }}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}, labels: {app: demo}}
spec: {selector: {app: demo}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ .Release.Name }}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ .Release.Name }}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: {{ .Release.Name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}}
subjects: [{kind: ServiceAccount, name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {app: demo}}
spec:
  replicas: {{ .Values.size }}
  selector: {matchLabels: {app: demo}}
  template:
    metadata: {labels: {app: demo}}
    spec:
      containers:
        - name: main
          image: "demo:{{ .Values.size }}"
          ports: [{name: http, containerPort: 8080}]
          env: [{name: SIZE, value: {{ .Values.size | quote }}}]
          resources: {limits: {cpu: 500m, memory: 64Mi}}
          readinessProbe: {httpGet: {path: /, port: http}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ .Release.Name }}}
spec:
  serviceName: {{ .Release.Name }}
  selector: {matchLabels: {app: demo-set}}
  template:
    metadata: {labels: {app: demo-set}}
    spec: {containers: [{name: main, image: demo}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: {{ .Release.Name }}}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: demo}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: {{ .Release.Name }}}
spec:
  schedule: "*/5 * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: demo}]}}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: {{ .Release.Name }}}
spec:
  rules:
    - host: demo.example.com
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: {{ .Release.Name }}, port: {name: http}}}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: {{ .Release.Name }}}
spec: {podSelector: {matchLabels: {app: demo}}, ingress: [{from: [{podSelector: {}}]}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: {{ .Release.Name }}}
spec: {minAvailable: 1, selector: {matchLabels: {app: demo}}}
"#;

fn find_helm() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("FLEET_HELM").filter(|p| !p.is_empty()) {
        return Some(given.into());
    }
    let found = Command::new("helm").arg("version").output().is_ok();
    if !found {
        eprintln!("skipped: helm is neither FLEET_HELM nor on the PATH");
    }
    found.then(|| "helm".into())
}

/// helm with one server's kubeconfig and a home of its own.
struct Helm {
    program: PathBuf,
    home: tempfile::TempDir,
}

impl Helm {
    fn run(&self, program: &Path, arguments: &[&str]) -> (bool, String) {
        let home = self.home.path();
        let out = Command::new("timeout")
            .arg("120")
            .arg(program)
            .args(arguments)
            .env("KUBECONFIG", home.join("config"))
            .env("KUBECACHEDIR", home.join("cache"))
            .env("HOME", home)
            .env("XDG_CACHE_HOME", home.join("xdg"))
            .env("XDG_CONFIG_HOME", home.join("xdg"))
            .env("XDG_DATA_HOME", home.join("xdg"))
            .output()
            .expect("runs");
        (out.status.success(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str], wanted: &str) -> String {
        let (ok, text) = self.run(&self.program, arguments);
        assert!(ok && text.contains(wanted), "helm {arguments:?}: wanted {wanted:?}, got: {text}");
        text
    }
}

async fn server() -> Option<(ApiServer, Server, Helm)> {
    let program = find_helm()?;
    let home = tempfile::tempdir().expect("a directory");
    let api = ApiServer::open(Config { access: Access::Rbac, ..Config::default() }).await.expect("opens");
    let served = api.serve(ServeOptions::default()).await.expect("listens");
    served.write_kubeconfig(&home.path().join("config"), "fleet").expect("written");
    Some((api, served, Helm { program, home }))
}

/// An object's JSON by the in-process door, or null.
async fn get(api: &ApiServer, path: &str) -> serde_json::Value {
    ask(api.router(), http::Method::GET, path, "").await
}

/// The answer by the in-process door, or null.
async fn ask(router: axum::Router, method: http::Method, path: &str, body: &str) -> serde_json::Value {
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/merge-patch+json")
        .body(axum::body::Body::from(body.to_owned()))
        .expect("a request");
    let response = router.oneshot(request).await.expect("answers");
    if !response.status().is_success() {
        return serde_json::Value::Null;
    }
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&bytes).expect("JSON")
}

fn group_of(plural: &str) -> &'static str {
    match plural {
        "roles" | "rolebindings" => "apis/rbac.authorization.k8s.io/v1",
        "deployments" | "statefulsets" => "apis/apps/v1",
        "jobs" | "cronjobs" => "apis/batch/v1",
        "ingresses" | "networkpolicies" => "apis/networking.k8s.io/v1",
        "poddisruptionbudgets" => "apis/policy/v1",
        _ => "api/v1",
    }
}

fn path_of(plural: &str, name: &str) -> String {
    format!("/{}/namespaces/apps/{plural}/{name}", group_of(plural))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_of_many_kinds_lives_and_goes() {
    let Some((api, served, helm)) = server().await else { return };
    let chart = helm.home.path().join("demo");
    std::fs::create_dir_all(chart.join("templates")).expect("made");
    std::fs::write(
        chart.join("Chart.yaml"),
        "apiVersion: v2\nname: demo\nversion: 1.0.0\nkubeVersion: '>=1.30.0-0'\n",
    )
    .expect("written");
    std::fs::write(chart.join("values.yaml"), "size: 1\npassword: secret\nmore: true\n").expect("written");
    std::fs::write(chart.join("templates/all.yaml"), TEMPLATE).expect("written");
    let chart = chart.to_string_lossy().into_owned();
    let data = "/api/v1/namespaces/apps/configmaps/demo";
    let deployment = "/apis/apps/v1/namespaces/apps/deployments/demo";

    helm.ok(
        &["install", "demo", &chart, "-n", "apps", "--create-namespace", "--dry-run=server"],
        "pending-install",
    );
    assert!(get(&api, data).await.is_null());
    helm.ok(&["install", "demo", &chart, "-n", "apps", "--create-namespace"], "STATUS: deployed");
    for (plural, name) in KINDS {
        let found = get(&api, &path_of(plural, name)).await;
        assert_eq!(found["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm", "{plural}: {found}");
    }
    assert_eq!(get(&api, data).await["data"], serde_json::json!({"size": "1", "more": "yes"}));
    let managers = get(&api, deployment).await["metadata"]["managedFields"].to_string();
    assert!(managers.contains("\"helm\"") && managers.contains("\"Apply\""), "{managers}");
    helm.ok(&["list", "-n", "apps"], "demo-1.0.0");
    helm.ok(&["status", "demo", "-n", "apps"], "REVISION: 1");
    helm.ok(&["get", "manifest", "demo", "-n", "apps"], "kind: PodDisruptionBudget");

    // What somebody else changed conflicts with an upgrade, and is taken back when told so.
    helm.ok(&["upgrade", "demo", &chart, "-n", "apps", "--set", "size=3,more=false"], "REVISION: 2");
    assert_eq!(get(&api, data).await["data"], serde_json::json!({"size": "3"}), "what is left out goes");
    let d = get(&api, deployment).await;
    assert_eq!(
        (&d["spec"]["replicas"], &d["spec"]["template"]["spec"]["containers"][0]["image"]),
        (&3.into(), &"demo:3".into())
    );
    assert_eq!(d["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
    helm.ok(&["history", "demo", "-n", "apps"], "superseded");
    helm.ok(&["rollback", "demo", "1", "-n", "apps"], "Rollback was a success");
    assert_eq!(get(&api, data).await["data"], serde_json::json!({"size": "1", "more": "yes"}));
    helm.ok(
        &["upgrade", "demo", &chart, "-n", "apps", "--reuse-values", "--set", "password=other"],
        "REVISION: 4",
    );
    let (broken, text) =
        helm.run(&helm.program, &["upgrade", "demo", &chart, "-n", "apps", "--set", "size=many"]);
    assert!(!broken, "{text}");
    helm.ok(&["uninstall", "demo", "-n", "apps", "--wait"], "uninstalled");
    for (plural, name) in KINDS {
        let start = std::time::Instant::now();
        while !get(&api, &path_of(plural, name)).await.is_null() {
            assert!(start.elapsed().as_secs() < 30, "{plural} is still there");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    let (_, text) = helm.run(&helm.program, &["list", "-n", "apps", "-a"]);
    assert!(!text.contains("demo"), "{text}");
    served.shutdown().await;
    api.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_charts_of_fleet_install() {
    let Some((api, served, helm)) = server().await else { return };
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts");
    let chart = |name: &str| charts.join(name).to_string_lossy().into_owned();
    let (hub, member) = (chart("fleet"), chart("member-agent"));
    let hub = [
        "install",
        "fleet",
        &hub,
        "-n",
        "fleet-hub",
        "--create-namespace",
        "--set",
        "image.repository=example.com/c",
    ];
    helm.ok(&hub, "STATUS: deployed");
    let agent =
        ["install", "agent", &member, "-n", "fleet-system", "--create-namespace", "--set", "cluster=east"];
    helm.ok(&agent, "STATUS: deployed");
    for path in [
        "/apis/apps/v1/namespaces/fleet-hub/deployments",
        "/apis/apps/v1/namespaces/fleet-system/deployments",
        "/api/v1/namespaces/fleet-hub/serviceaccounts",
    ] {
        let list = get(&api, path).await;
        assert!(list["items"].as_array().is_some_and(|items| !items.is_empty()), "{path}: {list}");
    }
    let crds = get(&api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusters.fleet.dev").await;
    assert_eq!(crds["spec"]["names"]["kind"], "Cluster");
    assert!(get(&api, "/apis/fleet.dev/v1alpha1/clusters").await["items"].is_array(), "it is served");
    helm.ok(
        &["upgrade", "fleet", &chart("fleet"), "-n", "fleet-hub", "--set", "replicas=2,portal.enabled=true"],
        "REVISION: 2",
    );
    let conf = "schedulerConf=actions: allocate";
    let upgrade = ["upgrade", "agent", &member, "-n", "fleet-system", "--reuse-values", "--set", conf];
    helm.ok(&upgrade, "REVISION: 2");
    let conf = get(&api, "/api/v1/namespaces/fleet-system/configmaps/agent-scheduler").await;
    assert_eq!(conf["data"]["volcano-scheduler.conf"].as_str().map(str::trim), Some("actions: allocate"));
    let agent = get(&api, "/apis/apps/v1/namespaces/fleet-system/deployments/agent").await;
    assert!(agent["spec"].to_string().contains("/etc/fleet/scheduler/volcano-scheduler.conf"), "{agent}");
    stay_up(&api, &helm, &chart("fleet"), &member).await;
    are_tested(&api, &helm, &chart("fleet"), &member).await;
    helm.ok(&["uninstall", "agent", "-n", "fleet-system"], "uninstalled");
    helm.ok(&["uninstall", "fleet", "-n", "fleet-hub"], "uninstalled");
    served.shutdown().await;
    api.shutdown().await;
}

/// Budgets for drains, policies of the network, a class and probes: only where they are wanted.
async fn stay_up(api: &ApiServer, helm: &Helm, hub: &str, member: &str) {
    let guards = ["policy/v1/{}/poddisruptionbudgets", "networking.k8s.io/v1/{}/networkpolicies"];
    let counts = async || {
        let mut counts = Vec::new();
        for namespace in ["namespaces/fleet-hub", "namespaces/fleet-system"] {
            for guard in guards {
                let list = get(api, &format!("/apis/{}", guard.replace("{}", namespace))).await;
                counts.push(list["items"].as_array().map_or(0, Vec::len));
            }
        }
        counts
    };
    // Two controllers have a budget, one agent has none.
    assert_eq!(counts().await, [1, 0, 0, 0]);
    let all = "replicas=2,priorityClassName=system-cluster-critical,networkPolicy.enabled=true,\
               networkPolicy.from[0].podSelector.matchLabels.app=prometheus";
    let metrics = "monitoring.metrics.enabled=true,metrics.enabled=true";
    for (name, chart, namespace) in [("fleet", hub, "fleet-hub"), ("agent", member, "fleet-system")] {
        let of_chart = metrics.split(',').nth(usize::from(name == "agent")).unwrap_or_default();
        let set = format!("{all},{of_chart}");
        helm.ok(&["upgrade", name, chart, "-n", namespace, "--reuse-values", "--set", &set], "REVISION: 3");
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        let pod = get(api, &path).await["spec"]["template"]["spec"].clone();
        assert_eq!(pod["priorityClassName"], "system-cluster-critical", "{pod}");
        let probe = &pod["containers"][0]["livenessProbe"]["httpGet"];
        assert_eq!((&probe["path"], &probe["port"]), (&"/healthz".into(), &"metrics".into()), "{pod}");
    }
    // The portal has a policy of its own.
    assert_eq!(counts().await, [1, 2, 1, 1]);
}

/// What the pod of a `helm test` was, and whether what it needs was there beside it.
struct Tested {
    pod: serde_json::Value,
    needs: Vec<bool>,
}

/// Plays the kubelet for the pod of a `helm test`: it runs, and succeeds.
fn play(
    api: &ApiServer,
    namespace: &str,
    name: &str,
    needs: &[&'static str],
) -> tokio::task::JoinHandle<Tested> {
    let (router, needs) = (api.router(), needs.to_vec());
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    tokio::spawn(async move {
        let mut pod = serde_json::Value::Null;
        while pod.is_null() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            pod = ask(router.clone(), http::Method::GET, &path, "").await;
        }
        let mut there = Vec::new();
        for need in needs {
            there.push(!ask(router.clone(), http::Method::GET, need, "").await.is_null());
        }
        let status = r#"{"status": {"phase": "Succeeded"}}"#;
        ask(router, http::Method::PATCH, &format!("{path}/status"), status).await;
        Tested { pod, needs: there }
    })
}

/// A pod that no policy of pod security refuses, and that runs this command.
fn is_restricted(pod: &serde_json::Value, command: &str) {
    let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
    let words: Vec<&str> = ["command", "args"]
        .iter()
        .flat_map(|list| container[*list].as_array().into_iter().flatten())
        .filter_map(serde_json::Value::as_str)
        .collect();
    assert_eq!(words.join(" "), command);
    assert_eq!(
        (&spec["securityContext"]["runAsNonRoot"], &spec["restartPolicy"]),
        (&true.into(), &"OnFailure".into())
    );
    assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(spec["activeDeadlineSeconds"], 120, "it ends, whatever it finds");
    let of_container = &container["securityContext"];
    assert_eq!(of_container["readOnlyRootFilesystem"], true);
    assert_eq!(of_container["allowPrivilegeEscalation"], false);
    assert_eq!(of_container["capabilities"]["drop"], serde_json::json!(["ALL"]));
}

/// `helm test` of both charts: a pod with few rights or none, of which nothing is left.
async fn are_tested(api: &ApiServer, helm: &Helm, hub: &str, member: &str) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let needs = [
        "/api/v1/namespaces/fleet-hub/serviceaccounts/fleet-test",
        "/api/v1/namespaces/fleet-hub/configmaps/fleet-test",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/fleet-hub-fleet-test",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/fleet-hub-fleet-test",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/fleet-hub-fleet-test",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/fleet-hub-fleet-test",
    ];
    let absent = async || {
        let mut all = needs.to_vec();
        all.extend([
            "/api/v1/namespaces/fleet-hub/pods/fleet-test",
            "/api/v1/namespaces/fleet-system/pods/agent-test",
        ]);
        for path in all {
            assert!(get(api, path).await.is_null(), "{path} is there without a test");
        }
    };
    absent().await;
    let played = play(api, "fleet-hub", "fleet-test", &needs);
    helm.ok(&["test", "fleet", "-n", "fleet-hub", "--timeout", "60s"], "Phase:          Succeeded");
    let found = played.await.expect("played");
    assert_eq!(found.needs, [true; 6]);
    is_restricted(&found.pod, "fleet --kubeconfig /etc/fleet/kubeconfig doctor --hub-only --strict");
    let played = play(api, "fleet-system", "agent-test", &[]);
    helm.ok(&["test", "agent", "-n", "fleet-system", "--timeout", "60s"], "Phase:          Succeeded");
    let pod = played.await.expect("played").pod;
    is_restricted(&pod, "fleet --kubeconfig /etc/fleet/hub/kubeconfig status east --check");
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false, "no account of the member");
    assert_eq!(pod["spec"]["volumes"][0]["secret"]["secretName"], "hub-kubeconfig");
    absent().await;
    // Whoever wants no such pod has none.
    for (name, chart, namespace) in [("fleet", hub, "fleet-hub"), ("agent", member, "fleet-system")] {
        let off = ["upgrade", name, chart, "-n", namespace, "--reuse-values", "--set", "tests.enabled=false"];
        helm.ok(&off, "REVISION: 4");
        let (_, hooks) = helm.run(&helm.program, &["get", "hooks", name, "-n", namespace]);
        assert!(!hooks.contains("kind: Pod"), "{hooks}");
    }
    assert!(get(api, &format!("{rbac}/clusterroles/fleet-hub-fleet")).await.is_object(), "the release stays");
}
