//! The real kubectl through every command the facts about it were recorded from.
//!
//! kubectl is found by `FLEET_KUBECTL`, else on the PATH; without it the test says so and passes.

use fleet_apiserver::{Access, ApiServer, Config, ServeOptions};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn find_kubectl() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("FLEET_KUBECTL").filter(|p| !p.is_empty()) {
        return Some(given.into());
    }
    let found = Command::new("kubectl").args(["version", "--client"]).output().is_ok();
    if !found {
        eprintln!("skipped: kubectl is neither FLEET_KUBECTL nor on the PATH");
    }
    found.then(|| "kubectl".into())
}

struct Kubectl {
    program: PathBuf,
    home: tempfile::TempDir,
}

impl Kubectl {
    fn run(&self, arguments: &str, input: &str) -> (bool, String) {
        let home = self.home.path();
        let mut child = Command::new("timeout")
            .arg("60")
            .arg(&self.program)
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", home.join("config"))
            .env("KUBECACHEDIR", home.join("cache"))
            .env("HOME", home)
            .env("KUBE_EDITOR", "sed -i s/colour/color/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        // A command that does not read its input may have ended already.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        let out = child.wait_with_output().expect("kubectl ends");
        (out.status.success(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
    }

    #[track_caller]
    fn ok(&self, arguments: &str, wanted: &str) -> String {
        self.with(arguments, "", wanted)
    }

    #[track_caller]
    fn with(&self, arguments: &str, input: &str, wanted: &str) -> String {
        let (ok, text) = self.run(arguments, input);
        assert!(ok && text.contains(wanted), "kubectl {arguments}: wanted {wanted:?}, got: {text}");
        text
    }

    #[track_caller]
    fn fails(&self, arguments: &str, wanted: &str) {
        let (ok, text) = self.run(arguments, "");
        assert!(!ok && text.contains(wanted), "kubectl {arguments}: wanted failure {wanted:?}, got: {text}");
    }
}

fn crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "queues.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": "queues", "kind": "Queue", "shortNames": ["q"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Weight", "type": "integer", "jsonPath": ".spec.weight"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"weight": {"type": "integer", "description": "Share of the queue."}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

fn queue(weight: i32) -> String {
    json!({"apiVersion": "test.dev/v1", "kind": "Queue", "metadata": {"name": "q1"}, "spec": {"weight": weight}}).to_string()
}

fn map(data: Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "labels": {"set": "one"}}, "data": data}).to_string()
}

fn creating(k: &Kubectl) {
    k.ok("version", "Server Version: v1.36.0+fleet");
    k.ok("cluster-info", "Kubernetes control plane");
    k.ok("api-versions", "apps/v1");
    k.ok("api-resources --categories=all", "deployments");
    for command in [
        "namespace team",
        "configmap c --from-literal=a=colour",
        "secret generic s --from-literal=a=b",
        "secret docker-registry reg --docker-username=u --docker-password=p",
        "serviceaccount robot",
        "deployment d --image=nginx --replicas=2",
        "job j --image=busybox",
        "cronjob cj --image=busybox --schedule=@daily",
        "service clusterip svc --tcp=80:8080",
        "service nodeport np --tcp=80",
        "quota qt --hard=pods=10",
        "role r --verb=get,list --resource=pods",
        "rolebinding rb --role=r --user=bob",
        "clusterrole cr --verb=get --resource=nodes",
        "clusterrolebinding crb --clusterrole=cr --group=dev",
        "priorityclass pc --value=10",
        "poddisruptionbudget pdb --selector=app=d --min-available=1",
        "ingress ing --rule=a.example.com/=svc:80",
    ] {
        k.ok(&format!("create {command}"), "created");
    }
    k.ok("create job from-cron --from=cronjob/cj", "created");
    k.ok("create token robot --duration=1h", ".");
    k.fails("create namespace team", "already exists");
    k.fails("create configmap c -n nowhere", "namespaces \"nowhere\" not found");
    k.ok("run p --image=nginx --labels=x=y", "created");
    k.ok("expose deployment d --port=80", "exposed");
    let kinds =
        "ns,cm,secret,sa,deploy,jobs,cronjobs,svc,quota,roles,rolebindings,clusterroles,clusterrolebindings,\
        priorityclasses,pdb,ing,hpa,pods,events,leases,nodes,crd"
            .replace(char::is_whitespace, "");
    k.ok(&format!("get {kinds}"), "rolebinding.rbac.authorization.k8s.io/rb");
    k.ok(&format!("get {kinds} -o wide -A"), "deployment.apps/d");
    k.ok("get all", "deployment.apps/d");
    k.ok("get cm c -o jsonpath={.data.a}", "colour");
    k.ok("get deploy d -o custom-columns=N:.metadata.name,R:.spec.replicas", "2");
    k.ok("get cm --sort-by=.metadata.name", "c ");
    k.ok("get pods -l x=y -o name", "pod/p");
    k.ok("get pods --field-selector=status.phase=Pending", "p ");
    k.fails("get pod nope", "pods \"nope\" not found");
    k.fails("get bogus", "doesn't have a resource type");
}

fn changing(k: &Kubectl) {
    k.ok("edit configmap c", "edited");
    k.ok("get cm c -o yaml", "a: color");
    k.with("apply -f -", &map(json!({"a": "1", "b": "2"})), "created");
    k.with("apply -f -", &map(json!({"a": "1", "b": "2"})), "unchanged");
    k.with("apply -f -", &map(json!({"a": "2"})), "configured");
    k.ok("get cm m -o jsonpath={.data}", "{\"a\":\"2\"}");
    k.with("apply --dry-run=server -f -", &map(json!({"a": "3"})), "configured (server dry run)");
    let (_, differs) = k.run("diff -f -", &map(json!({"a": "3"})));
    assert!(differs.contains("+  a: \"3\""), "{differs}");
    k.with("apply --server-side -f -", &map(json!({"a": "4"})), "serverside-applied");
    k.fails("apply --server-side --field-manager=other -f /dev/null", "no objects passed");
    let (taken, text) = k.run("apply --server-side --field-manager=other -f -", &map(json!({"a": "5"})));
    assert!(!taken && text.contains("conflict with"), "{text}");
    k.with(
        "apply --server-side --field-manager=other --force-conflicts -f -",
        &map(json!({"a": "5"})),
        "serverside-applied",
    );
    k.with("replace -f -", &map(json!({"r": "1"})), "replaced");
    k.with("apply -l set=one --prune --prune-allowlist=core/v1/ConfigMap -f -", &map(json!({"r": "1"})), "");
    let (ok, text) = k.run(
        "create -f -",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "bogus": 1}).to_string(),
    );
    assert!(!ok && text.contains("unknown field \"bogus\""), "{text}");
    k.ok("set image deployment/d nginx=nginx:2", "image updated");
    k.ok("set env deployment/d A=b", "env updated");
    k.ok("set resources deployment/d --limits=cpu=1", "resource requirements updated");
    k.ok("scale deployment d --replicas=3", "scaled");
    k.fails("scale deployment d --current-replicas=9 --replicas=1", "xpected replicas to be 9");
    k.ok("rollout restart deployment d", "restarted");
    k.ok("rollout history deployment d", "deployment.apps/d");
    k.ok("rollout pause deployment d", "paused");
    k.ok("rollout resume deployment d", "resumed");
    let status = json!({"status": {"observedGeneration": 99, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        "conditions": [{"type": "Available", "status": "True"}]}});
    let patch = k.home.path().join("patch");
    std::fs::write(&patch, status.to_string()).expect("written");
    k.ok(
        &format!("patch deployment d --subresource=status --type=merge --patch-file={}", patch.display()),
        "patched",
    );
    k.ok("rollout status deployment d --timeout=20s", "successfully rolled out");
    k.ok("wait deployment/d --for=condition=Available --timeout=20s", "condition met");
    k.ok("label pod p tier=1", "labeled");
    k.ok("label pod p tier-", "unlabeled");
    k.ok("annotate pod p note=hi", "annotated");
    k.ok(
        "patch deployment d --type=json -p [{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":1}]",
        "patched",
    );
    k.ok("patch deployment d -p {\"spec\":{\"paused\":true}}", "patched");
}

fn custom(k: &Kubectl) {
    k.with("apply -f -", &crd().to_string(), "created");
    k.ok("wait crd/queues.test.dev --for=condition=Established --timeout=20s", "condition met");
    k.with("apply -f -", &queue(1), "created");
    k.with("apply -f -", &queue(2), "configured");
    k.with("apply --server-side -f -", &queue(3), "serverside-applied");
    k.ok("get q", "WEIGHT");
    k.ok("get queue q1 -o yaml", "weight: 3");
    k.ok("explain pod.spec.containers --output=plaintext-openapiv2", "imagePullPolicy");
    k.ok("explain queue.spec", "Share of the queue.");
    k.ok("explain queues --recursive", "weight");
    k.ok("explain pod.spec.containers.ports", "containerPort");
    k.ok("explain deployment.spec.strategy", "rollingUpdate");
    k.ok("describe queue q1", "Weight:");
    k.ok("patch queue q1 --type=merge -p {\"spec\":{\"weight\":5}}", "patched");
    k.ok("wait queue/q1 --for=jsonpath={.spec.weight}=5 --timeout=20s", "condition met");
    k.ok("api-resources --api-group=test.dev", "queues");
    k.ok("delete queue q1", "deleted");
    k.ok("delete crd queues.test.dev", "deleted");
    k.fails("get queues", "resource");
}

fn nodes_and_pods(k: &Kubectl) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4", "pods": "10"}}});
    k.with("create -f -", &node.to_string(), "created");
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    k.with("create -f -", &bound.to_string(), "created");
    k.ok("get pods -o wide", "n1");
    k.ok("get nodes -o wide", "n1");
    for what in [
        "pod b",
        "node n1",
        "deployment d",
        "service svc",
        "job j",
        "ns team",
        "sa robot",
        "secret s",
        "role r",
        "pdb pdb",
        "ingress ing",
        "quota qt",
    ] {
        k.ok(&format!("describe {what}"), "Name:");
    }
    k.ok("logs p", "");
    k.fails("exec p -- true", "does not have a host assigned");
    k.ok("events", "");
    k.ok("cordon n1", "cordoned");
    k.ok("get nodes", "SchedulingDisabled");
    k.ok("uncordon n1", "uncordoned");
    k.ok("taint node n1 a=b:NoSchedule", "tainted");
    k.ok("taint node n1 a-", "untainted");
    k.ok("drain n1 --force --grace-period=0 --timeout=20s", "drained");
    k.fails("get pod b", "not found");
    k.fails("top nodes", "Metrics API not available");
    k.ok("debug p --image=busybox --target=p --attach=false --quiet", "");
    k.ok("get pod p -o jsonpath={.spec.ephemeralContainers[0].image}", "busybox");
}

fn signing_request(name: &str) -> String {
    use base64::Engine;
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let pem = params.serialize_request(&key).and_then(|r| r.pem()).expect("a request");
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": base64::engine::general_purpose::STANDARD.encode(pem), "signerName": "example.com/s", "usages": ["client auth"]}})
    .to_string()
}

fn other_kinds(k: &Kubectl) {
    k.ok("autoscale deployment d --min=1 --max=5 --cpu-percent=70", "autoscaled");
    k.ok("get hpa", "cpu: <unknown>/70%");
    k.ok(
        "get horizontalpodautoscalers.v1.autoscaling d -o jsonpath={.spec.targetCPUUtilizationPercentage}",
        "70",
    );
    for (name, verb, says) in [("ann", "approve", "Approved"), ("ben", "deny", "Denied")] {
        k.with("create -f -", &signing_request(name), "created");
        k.ok(&format!("get csr {name}"), "Pending");
        k.ok(&format!("certificate {verb} {name}"), name);
        k.ok(&format!("get csr {name}"), says);
    }
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Seen", "message": "it was seen", "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "lastTimestamp": "2026-01-01T00:00:00Z"});
    k.with("create -f -", &event.to_string(), "created");
    let text = k.ok("get events", "it was seen");
    let head: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(head, ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"], "{text}");
    k.ok("get events -o wide", "SUBOBJECT");
    k.fails("port-forward p 8080:80 --address=127.0.0.1 --pod-running-timeout=1s", "");
    k.fails("attach p --pod-running-timeout=1s", "");
    k.ok("get svc kubernetes", "443/TCP");
    k.ok("get --raw /metrics", "apiserver_request_total{");
}

fn access(k: &Kubectl) {
    k.ok("auth can-i create pods", "yes");
    k.ok("auth can-i --list", "[*]");
    k.ok("auth whoami", "system:admin");
    k.ok("auth whoami --as=bob --as-group=dev", "bob");
    k.ok("auth can-i get pods --as=bob", "yes");
    k.ok("auth can-i get nodes --as=ann --as-group=dev", "yes");
    let (_, text) = k.run("auth can-i delete pods --as=bob", "");
    assert!(text.starts_with("no"), "{text}");
    k.fails("get configmaps --as=bob", "User \"bob\" cannot list resource \"configmaps\"");
    k.with("auth reconcile -f -", &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "rec"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}).to_string(), "reconciled");
}

fn deleting(k: &Kubectl) {
    k.ok("delete pod p --grace-period=0 --force", "deleted");
    k.ok("delete configmap -l set=one", "deleted");
    k.ok("delete job j --cascade=orphan", "deleted");
    k.ok("delete cronjobs --all", "deleted");
    k.ok("delete deployment d --cascade=foreground", "deleted");
    k.ok("delete svc,ing,hpa,pdb --all", "deleted");
    k.ok("delete namespace team", "deleted");
    k.fails("delete namespace default", "may not be deleted");
    k.ok("delete cm nope --ignore-not-found", "");
    k.ok("get pods", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_works() {
    let Some(program) = find_kubectl() else { return };
    let home = tempfile::tempdir().expect("a directory");
    let api = ApiServer::open(Config { access: Access::Rbac, ..Config::default() }).await.expect("opens");
    let served = api.serve(ServeOptions::default()).await.expect("listens");
    served.write_kubeconfig(&home.path().join("config"), "fleet").expect("written");
    let k = Kubectl { program, home };
    let script = tokio::task::spawn_blocking(move || {
        for part in [creating, changing, custom, nodes_and_pods, other_kinds, access, deleting] {
            part(&k);
        }
    });
    script.await.expect("the commands");
    served.shutdown().await;
    api.shutdown().await;
}

/// What apply, server-side apply and diff say of objects that a user makes.
fn applying(k: &Kubectl) -> Vec<String> {
    let map = |name: &str, data: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}).to_string()
    };
    let steps = [
        ("create -f -", map("made", json!({"a": "1", "b": "1"}))),
        ("diff -f -", map("made", json!({"a": "2", "b": "1"}))),
        ("apply --server-side --field-manager=other -f -", map("made", json!({"a": "2"}))),
        ("apply --server-side --field-manager=other --force-conflicts -f -", map("made", json!({"a": "2"}))),
        ("get cm made -o jsonpath={.data}{.metadata.managedFields[*].manager}", String::new()),
        ("apply -f -", map("applied", json!({"a": "1", "b": "1"}))),
        ("apply -f -", map("applied", json!({"a": "1"}))),
        ("diff -f -", map("applied", json!({"a": "3"}))),
        ("diff --server-side -f -", map("applied", json!({"a": "3"}))),
        ("patch cm applied --type=merge -p {\"data\":{\"c\":\"9\"}}", String::new()),
        ("apply --server-side -f -", map("applied", json!({"a": "4"}))),
        ("apply --server-side -f -", map("applied", json!({"a": "4", "c": "8"}))),
        ("get cm applied -o jsonpath={.data}{.metadata.managedFields[*].manager}", String::new()),
    ];
    let say = |(arguments, input): (&str, String)| {
        let (ok, text) = k.run(arguments, &input);
        let lines = text.lines().filter(|line| {
            // Names of files and times of two runs differ, and what identifies the object.
            let own = ["---", "+++", "diff ", "@@"].iter().any(|start| line.starts_with(start));
            let of_server = ["resourceVersion", "uid:", "time:", "creationTimestamp", "generation"];
            !own && !of_server.iter().any(|field| line.contains(field))
        });
        format!("{arguments} {ok}: {}", lines.collect::<Vec<_>>().join("\n"))
    };
    steps.into_iter().map(say).collect()
}

/// What the same commands do to an object of a manager whose objects begin without managedFields.
fn applying_to_untracked(k: &Kubectl) {
    let map = |data: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lean"}, "data": data})
            .to_string()
    };
    let managers = |wanted: &str| {
        let (_, text) = k.run("get cm lean -o jsonpath={.metadata.managedFields[*].manager}", "");
        assert_eq!(text, wanted);
    };
    k.with("create --field-manager=robot -f -", &map(json!({"a": "1", "b": "1"})), "created");
    managers("");
    k.ok("patch cm lean --type=merge -p {\"data\":{\"c\":\"1\"}}", "patched");
    managers("");
    let (same, text) = k.run("diff -f -", &map(json!({"a": "2"})));
    assert!(!same && text.contains("a: \"2\""), "{text}");
    k.with("apply -f -", &map(json!({"a": "2"})), "configured");
    k.ok("get cm lean -o jsonpath={.data}", "{\"a\":\"2\",\"b\":\"1\",\"c\":\"1\"}");
    managers("");
    // From the first server-side apply on everything is as ever.
    let (ok, text) = k.run("apply --server-side --field-manager=me -f -", &map(json!({"b": "2"})));
    assert!(!ok && text.contains("conflict with \"before-first-apply\""), "{text}");
    let forced = "apply --server-side --field-manager=me --force-conflicts -f -";
    k.with(forced, &map(json!({"b": "2"})), "serverside-applied");
    // kubectl takes over what was applied client-side before, and applies once more: of that only `b` is left.
    managers("me");
    k.ok("patch cm lean --type=merge -p {\"data\":{\"b\":\"3\"}}", "patched");
    managers("kubectl-patch");
    let (ok, text) = k.run("apply --server-side --field-manager=me -f -", &map(json!({"b": "2"})));
    assert!(!ok && text.contains("conflict with \"kubectl-patch\""), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_some_managers_begin_without_managed_fields_and_apply_does_as_ever() {
    let Some(program) = find_kubectl() else { return };
    let mut said = Vec::new();
    for untracked in [Default::default(), ["robot".to_string()].into()] {
        let is_lean = !std::collections::BTreeSet::<String>::is_empty(&untracked);
        let home = tempfile::tempdir().expect("a directory");
        let api = ApiServer::open(Config { untracked, ..Config::default() }).await.expect("opens");
        let served = api.serve(ServeOptions::default()).await.expect("listens");
        served.write_kubeconfig(&home.path().join("config"), "fleet").expect("written");
        let k = Kubectl { program: program.clone(), home };
        let script = tokio::task::spawn_blocking(move || {
            if is_lean {
                applying_to_untracked(&k);
            }
            applying(&k)
        });
        said.push(script.await.expect("the commands"));
        served.shutdown().await;
        api.shutdown().await;
    }
    assert!(said[0].iter().any(|line| line.contains("conflict with \"kubectl-create\"")), "{said:#?}");
    assert_eq!(said[0], said[1], "what users make is tracked either way");
}
