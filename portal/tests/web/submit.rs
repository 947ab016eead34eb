//! The page on which jobs are submitted.

use axum::http::header;

use crate::hub::{Hub, JOBS, location};

#[tokio::test]
async fn a_job_is_submitted_by_form_and_by_text() {
    let hub = Hub::start().await;
    let mut alice = hub.sign_in("token-a").await;
    assert_eq!(hub.get(&mut alice, "/submit").await.status, 200);
    let fields = |name: &str, more: &str| {
        format!(
            "name={name}&namespace=a&kind=PyTorchJob&role0-name=Master&role0-replicas=1&role0-image=i&role0-gpus=8&role0-cpu=1&role0-memory=1Gi&{more}"
        )
    };
    let jobs = JOBS.replace("NS", "a");
    // Checked by the hub, and not kept.
    let answer = hub.post(&mut alice, "/submit", &fields("train", "do=check")).await;
    assert!(answer.status == 200 && answer.body.contains("The hub would take it"), "{}", answer.body);
    assert!(hub.object(&format!("{jobs}/train")).await.is_err());
    let answer = hub.post(&mut alice, "/submit", &fields("train", "do=yaml")).await;
    assert!(
        answer.body.contains("pytorchReplicaSpecs:") && answer.body.contains("<textarea"),
        "{}",
        answer.body
    );
    let answer = hub.post(&mut alice, "/submit", &fields("train", "do=create")).await;
    assert_eq!((answer.status, location(&answer)), (303, "/jobs/a/pytorchjobs.kubeflow.org/train"));
    let made = hub.object(&format!("{jobs}/train")).await.expect("a job");
    let container = &made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "8");
    // Its page says what the fleet does not know yet.
    let answer = hub.get(&mut alice, "/jobs/a/pytorchjobs.kubeflow.org/train").await;
    assert!(answer.status == 200 && answer.body.contains("no policy selects it"), "{}", answer.body);
    // Errors stand beside the field, and what was written stays.
    let wrong = |name: &str, more: &str, field: &'static str| (fields(name, more), field);
    for (fields, field) in [
        wrong("Train!", "do=create", "name"),
        wrong("train", "do=create", "name"),
        (fields("other", "do=create").replace("role0-replicas=1", "role0-replicas=x"), "role0-replicas"),
        (fields("other", "do=create").replace("namespace=a", "namespace=b"), "namespace"),
    ] {
        let answer = hub.post(&mut alice, "/submit", &fields).await;
        assert_eq!(answer.status, 422, "{field}: {}", answer.body);
        assert!(answer.body.contains(&format!("id=\"{field}-trouble\"")), "{field}: {}", answer.body);
        assert!(answer.body.contains("value=\"8\""), "{field}");
    }
    let text = |text: &str| text.replace('\n', "%0D%0A").replace(' ', "+").replace(':', "%3A");
    let job = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: by-text\nspec:\n  pytorchReplicaSpecs:\n    Master:\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            image: i\n";
    let answer = hub.post(&mut alice, "/submit", &format!("mode=yaml&do=create&yaml={}", text(job))).await;
    assert_eq!(location(&answer), "/jobs/a/pytorchjobs.kubeflow.org/by-text", "{}", answer.body);
    for (wrong, says) in [
        (job.replace("kind: PyTorchJob", "kind: Secret"), "found kubeflow.org/v1 Secret"),
        (job.replace("by-text", "other").replace("containers", "contaniers"), "contaniers"),
        ("a: [".to_owned(), "YAML"),
        ("a: 1\n---\nb: 1".to_owned(), "found 2 documents"),
        (String::new(), "found 0 documents"),
        ("protocolVersion: 2\nname: a\ntype: job\n".to_owned(), "taskRoles"),
        (job.replace("  name: by-text", "  name: x\n  namespace: ../../secrets"), ""),
    ] {
        let answer =
            hub.post(&mut alice, "/submit", &format!("mode=yaml&do=create&yaml={}", text(&wrong))).await;
        assert_eq!(answer.status, 422, "{wrong}: {}", answer.body);
        assert!(
            answer.body.contains("id=\"yaml-trouble\"") && answer.body.contains(says),
            "{says}: {}",
            answer.body
        );
    }
    // A clone is the same job without a name: in the form, which says everything of it, and as text.
    let clone = "/submit?clone=a%2Fpytorchjobs.kubeflow.org%2Ftrain";
    let answer = hub.get(&mut alice, clone).await;
    for field in [
        "id=\"name\" name=\"name\" value=\"\"",
        "name=\"namespace\" value=\"a\"",
        "name=\"role0-gpus\" value=\"8\"",
    ] {
        assert!(answer.body.contains(field), "{field} in {}", answer.body);
    }
    let answer = hub.get(&mut alice, &format!("{clone}&mode=yaml")).await;
    assert!(
        answer.body.contains("name: &quot;&quot;") || answer.body.contains("name: ''"),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("pytorchReplicaSpecs:") && !answer.body.contains("resourceVersion"));
}

/// What the form says as a file, and no file of what it does not say.
#[tokio::test]
async fn a_job_is_exported() {
    let hub = Hub::start().await;
    let mut alice = hub.sign_in("token-a").await;
    hub.get(&mut alice, "/submit").await;
    let fields = |name: &str| {
        format!(
            "do=export&name={name}&namespace=a&kind=PyTorchJob&queue=&priority=&role0-name=Master&role0-replicas=1&role0-image=i&\
             role0-gpus=8&role0-cpu=1&role0-memory=1Gi&role0-command="
        )
    };
    let answer = hub.post(&mut alice, "/submit", &fields("train")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.headers[header::CONTENT_DISPOSITION], "attachment; filename=\"train.yaml\"");
    assert!(
        answer.body.contains("kind: PyTorchJob") && answer.body.contains("name: train"),
        "{}",
        answer.body
    );
    let answer = hub.post(&mut alice, "/submit", &fields("Train!")).await;
    assert!(answer.status == 422 && answer.body.contains("id=\"name-trouble\""), "{}", answer.body);
    let answer = hub.post(&mut alice, "/submit", "mode=yaml&do=export&yaml=a%3A+1%0D%0Ab%3A+2").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "a: 1\nb: 2"));
    assert_eq!(answer.headers[header::CONTENT_DISPOSITION], "attachment; filename=\"job.yaml\"");
    assert!(hub.object(&format!("{}/train", JOBS.replace("NS", "a"))).await.is_err(), "nothing was made");
}
