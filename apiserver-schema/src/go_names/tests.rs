use super::*;

fn check(kind: &str, path: &str, field: &str, ty: &str) {
    let want = Place { field: field.into(), ty: ty.into() };
    assert_eq!(place(&Schema::builtin(kind), path), Some(want), "{path}");
}

#[test]
fn fields_have_the_names_of_the_decoder() {
    let deployment = "api.apps.v1.Deployment";
    check(deployment, "spec.replicas", "DeploymentSpec.spec.replicas", "int32");
    check(deployment, "spec", "Deployment.spec", "v1.DeploymentSpec");
    check(deployment, "metadata.name", "ObjectMeta.metadata.name", "string");
    check(deployment, "metadata.labels.a.b/c", "ObjectMeta.metadata.labels", "string");
    check(deployment, "metadata.generation", "ObjectMeta.metadata.generation", "int64");
    let pod = "api.core.v1.Pod";
    check(pod, "spec.containers", "PodSpec.spec.containers", "[]v1.Container");
    check(pod, "spec.containers[0].env[1].value", "EnvVar.spec.containers.env.value", "string");
    check(pod, "spec.containers[0]", "PodSpec.spec.containers", "v1.Container");
    check(pod, "spec.restartPolicy", "PodSpec.spec.restartPolicy", "v1.RestartPolicy");
    check("api.core.v1.Service", "spec.ipFamilies[0]", "ServiceSpec.spec.ipFamilies", "v1.IPFamily");
    check("api.core.v1.Secret", "data.a", "Secret.data", "[]uint8");
    check("api.core.v1.ConfigMap", "data", "ConfigMap.data", "map[string]string");
}
