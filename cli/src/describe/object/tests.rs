use super::*;
use serde_json::json;

#[test]
fn fields_read_as_words() {
    let object = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "a", "namespace": "default", "labels": {"app": "x"},
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [
            {"image": "i", "name": "n", "command": ["a", "b"], "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}}}});
    insta::assert_snapshot!(describe(&object), @r"
    Name:         a
    Namespace:    default
    Labels:       app=x
    Annotations:  <none>
    API Version:  kubeflow.org/v1
    Kind:         PyTorchJob
    Created:      2026-01-01T00:00:00Z
    Spec:
      Pytorch Replica Specs:
        Master:
          Replicas:  1
          Template:
            Spec:
              Containers:
                - Command:  a b
                  Image:  i
                  Name:  n
                  Resources:
                    Limits:
                      nvidia.com/gpu:  1
    ");
}

#[test]
fn events_stand_in_columns() {
    let event = json!({"type": "Normal", "reason": "ScheduleBindingSucceed", "count": 2,
        "source": {"component": "default-scheduler"}, "lastTimestamp": "2026-01-01T00:00:00Z",
        "message": "Binding has been scheduled successfully. Result: {east:0,[{master 1} {worker 2}]}"});
    let now = "2026-01-01T00:04:59Z".parse().expect("a time");
    insta::assert_snapshot!(events(&[event], now), @r"
    Events:
      Type     Reason                   Age          From                Message
      ----     ------                   ----         ----                -------
      Normal   ScheduleBindingSucceed   4m59s (x2)   default-scheduler   Binding has been scheduled successfully. Result: {east:0,[{master 1} {worker 2}]}
    ");
}

#[test]
fn a_description_fits_80_columns() {
    let object = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "a", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {
            "note": "the whole training of the second language model of the team for speech and vision"}},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "n",
            "command": ["python", "-m", "torch.distributed.run", "--nproc-per-node=8", "train.py", "--epochs", "90"]}]}}}}},
        "status": {"conditions": [{"type": "Queuing", "message": "InsufficientQuotaInParent: queue root/team: nvidia.com/gpu: \
            8 requested, 24 of 32 used, 16 of them borrowed by root/other"}]}});
    insta::assert_snapshot!(terminal::fold(&describe(&object), Some(80)), @r"
    Name:         a
    Namespace:    default
    Labels:       <none>
    Annotations:  note=the whole training of the second language model of the team
                  for speech and vision
    API Version:  kubeflow.org/v1
    Kind:         PyTorchJob
    Created:      2026-01-01T00:00:00Z
    Spec:
      Pytorch Replica Specs:
        Master:
          Template:
            Spec:
              Containers:
                - Command:  python -m torch.distributed.run --nproc-per-node=8
                            train.py --epochs 90
                  Name:  n
    Status:
      Conditions:
        - Message:  InsufficientQuotaInParent: queue root/team: nvidia.com/gpu: 8
                    requested, 24 of 32 used, 16 of them borrowed by root/other
          Type:  Queuing
    ");
    let event = json!({"type": "Normal", "reason": "ScheduleBindingSucceed", "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "default-scheduler"},
        "message": "Binding has been scheduled successfully. Result: {east:0,[{master 1} {worker 2}]}"});
    let now = "2026-01-01T00:04:59Z".parse().expect("a time");
    insta::assert_snapshot!(events_within(&[event], now, Some(78)), @r"
    Events:
      Type     Reason                   Age     From                Message
      ----     ------                   ----    ----                -------
      Normal   ScheduleBindingSucceed   4m59s   default-scheduler   Binding has been
                                                                    scheduled
                                                                    successfully.
                                                                    Result:
                                                                    {east:0,[{master
                                                                    1} {worker 2}]}
    ");
}
