//! Reads and writes objects of the member whose kind is known only at run time.

use std::sync::Arc;

use fleet_api::names::AGENT_MANAGER;
use fleet_informer::without_managers;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    core::{GroupVersionKind, Request},
    discovery::{ApiResource, oneshot},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    keys::{KindId, ObjectId},
    marks::is_managed,
    rights,
    state::Known,
    works::Works,
};
use fleet_agent_ground::{CallError, Pod, call, resource};

const IMPERSONATE_USER: http::HeaderName = http::HeaderName::from_static("impersonate-user");

/// The identity that sends a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    /// The account that the member's administrator chose for the namespace: for everything that a job
    /// requests.
    Account,
    /// The agent itself: for ending or releasing what Fleet created. An account that loses its rights must
    /// not keep a run alive.
    Agent,
}

impl Works {
    /// The resource of a kind, from the cache or from discovery; its watch is started.
    pub(crate) async fn resource_of(self: &Arc<Self>, kind: &KindId) -> Result<ApiResource, CallError> {
        if let Some(resource) = self.state().resource(kind) {
            return Ok(resource);
        }
        let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
        let wanted = GroupVersionKind::gvk(group, version, &kind.kind);
        let (resource, _) = call(oneshot::pinned_kind(&self.handles.member.client, &wanted)).await?;
        self.watch_kind(resource.clone());
        Ok(resource)
    }

    fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.handles.member.client.clone(), resource),
            namespace => Api::namespaced_with(self.handles.member.client.clone(), namespace, resource),
        }
    }

    /// The cached object; read from the member while the watch is not complete.
    pub(crate) async fn object(
        self: &Arc<Self>,
        id: &ObjectId,
    ) -> Result<Option<Arc<DynamicObject>>, CallError> {
        let known = self.state().object(id);
        match known {
            Known::Object(object) => Ok(Some(object)),
            Known::Absent => Ok(None),
            Known::Unknown => self.fetch(id).await,
        }
    }

    /// The object as the member has it now, whoever created it.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        id: &ObjectId,
    ) -> Result<Option<Arc<DynamicObject>>, CallError> {
        let resource = match self.resource_of(&id.kind).await {
            // The member does not serve the kind.
            Err(error) if error.is_not_found() => return Ok(None),
            resource => resource?,
        };
        let object = call(self.api(&resource, &id.namespace).get_opt(&id.name)).await?.map(Arc::new);
        if let Some(object) = &object {
            self.keep(id, object.clone());
        }
        Ok(object)
    }

    /// Creates an object, and its namespace if that is missing.
    pub(crate) async fn create(
        self: &Arc<Self>,
        id: &ObjectId,
        object: &Value,
    ) -> Result<Arc<DynamicObject>, CallError> {
        let resource = self.resource_of(&id.kind).await?;
        let api = self.api(&resource, &id.namespace);
        let object: DynamicObject = serde_json::from_value(object.clone())
            .map_err(|error| CallError::Api(kube::Error::SerdeError(error)))?;
        let params = PostParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PostParams::default() };
        let body =
            serde_json::to_vec(&object).map_err(|error| CallError::Api(kube::Error::SerdeError(error)))?;
        let path = Request::new(api.resource_url());
        let create = || self.written(As::Account, &id.namespace, path.create(&params, body.clone()));
        let mut answer: Result<DynamicObject, CallError> = create().await;
        if answer.as_ref().is_err_and(CallError::is_not_found) && !id.namespace.is_empty() {
            self.create_namespace(&id.namespace).await?;
            answer = create().await;
        }
        if answer.as_ref().is_err_and(|error| error.code().is_none()) {
            self.state().late.gave_up(id);
        }
        let created = Arc::new(answer?);
        self.state().late.made(id);
        self.keep(id, created.clone());
        Ok(created)
    }

    async fn written<T: DeserializeOwned>(
        &self,
        rights: As,
        namespace: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let mut request = request.map_err(|error| CallError::Api(kube::Error::BuildRequest(error)))?;
        if let Some(user) = self.settings.permits.user(namespace).filter(|_| rights == As::Account) {
            let user = http::HeaderValue::try_from(user)
                .map_err(|error| CallError::Api(kube::Error::HttpError(error.into())))?;
            request.headers_mut().insert(IMPERSONATE_USER, user);
        }
        call(self.handles.member.client.request(request)).await
    }

    async fn create_namespace(&self, name: &str) -> Result<(), CallError> {
        let resource = resource("", "v1", "Namespace", "namespaces");
        let namespace = DynamicObject::new(name, &resource).data(json!({}));
        match call(self.api(&resource, "").create(&PostParams::default(), &namespace)).await {
            Err(error) if error.is_conflict() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Why the member's roles forbid a write with this verb to the applying account; `None` if the rights
    /// exist and something else has forbidden it.
    pub(crate) async fn forbidden(
        self: &Arc<Self>,
        id: &ObjectId,
        verb: &str,
    ) -> Result<Option<String>, CallError> {
        let resource = self.resource_of(&id.kind).await?;
        let user = self.settings.permits.user(&id.namespace);
        let mut review = SelfSubjectAccessReview::default();
        review.spec.resource_attributes = Some(ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(resource.group.clone()),
            resource: Some(resource.plural.clone()),
            namespace: Some(id.namespace.clone()),
            name: Some(id.name.clone()),
            ..ResourceAttributes::default()
        });
        let body =
            serde_json::to_vec(&review).map_err(|error| CallError::Api(kube::Error::SerdeError(error)))?;
        let request = Request::new(SelfSubjectAccessReview::url_path(&(), None));
        let request = request.create(&PostParams::default(), body);
        let answer: Result<SelfSubjectAccessReview, _> =
            self.written(As::Account, &id.namespace, request).await;
        let asked = rights::NeededRight { verb, resource: &resource, namespace: &id.namespace };
        match (answer, user) {
            (Ok(review), user) if review.status.as_ref().is_some_and(|status| !status.allowed) => {
                Ok(Some(asked.lacked_by(user.as_deref())))
            }
            (Err(error), Some(user)) if error.is_forbidden() => {
                Ok(Some(rights::may_not_act_as(&user, &error)))
            }
            (Err(error), _) => Err(error),
            (Ok(_), _) => Ok(None),
        }
    }

    /// Applies a change that a job requests; `None` if the object is gone.
    pub(crate) async fn change(
        self: &Arc<Self>,
        id: &ObjectId,
        patch: &Value,
    ) -> Result<Option<Arc<DynamicObject>>, CallError> {
        self.patched(As::Account, id, patch).await
    }

    /// Merge patch of Fleet's own marks; `None` if the object is gone.
    pub(crate) async fn patch(
        self: &Arc<Self>,
        id: &ObjectId,
        patch: &Value,
    ) -> Result<Option<Arc<DynamicObject>>, CallError> {
        self.patched(As::Agent, id, patch).await
    }

    async fn patched(
        self: &Arc<Self>,
        rights: As,
        id: &ObjectId,
        patch: &Value,
    ) -> Result<Option<Arc<DynamicObject>>, CallError> {
        let resource = self.resource_of(&id.kind).await?;
        let params = PatchParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(&resource, &id.namespace);
        let path = Request::new(api.resource_url());
        let request = path.patch(&id.name, &params, &Patch::Merge(patch));
        match self.written::<DynamicObject>(rights, &id.namespace, request).await {
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => {
                // The cache may be outdated; the next reconcile reads from the member.
                if error.is_conflict() {
                    self.fetch(id).await?;
                }
                Err(error)
            }
            Ok(object) => {
                let object = Arc::new(object);
                self.keep(id, object.clone());
                Ok(Some(object))
            }
        }
    }

    /// Deletes the object in the background, if it is still the same one. A conflict means another object, or
    /// a race in the server: it is returned, and the next reconcile decides.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        id: &ObjectId,
        object: &DynamicObject,
    ) -> Result<(), CallError> {
        let resource = self.resource_of(&id.kind).await?;
        let preconditions = Preconditions { uid: object.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::background().preconditions(preconditions);
        let path = Request::new(self.api(&resource, &id.namespace).resource_url());
        match self.written::<Value>(As::Agent, &id.namespace, path.delete(&id.name, &params)).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                if error.is_conflict() {
                    self.fetch(id).await?;
                }
                Err(error)
            }
            Ok(answer) => {
                // The answer is the object if finalizers keep it, otherwise a Status.
                if answer["kind"] != "Status"
                    && let Ok(object) = serde_json::from_value(answer)
                {
                    self.keep(id, Arc::new(object));
                }
                Ok(())
            }
        }
    }

    /// Deletes a pod so that it ends within the bound of this member, also one that was deleted with a longer grace
    /// period.
    pub(crate) async fn end_pod(&self, pod: &Pod) -> Result<(), CallError> {
        let Some(grace) = pod.grace_s(self.settings.max_pod_grace) else { return Ok(()) };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced_with(
            self.handles.member.client.clone(),
            namespace,
            &resource("", "v1", "Pod", "pods"),
        );
        let preconditions = Preconditions { uid: Some(pod.uid().to_owned()), resource_version: None };
        let params = DeleteParams::background().grace_period(grace).preconditions(preconditions);
        match call(api.delete(pod.name(), &params)).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Updates the cache from an answer of the member, if the object is watched.
    fn keep(&self, id: &ObjectId, object: Arc<DynamicObject>) {
        if !is_managed(&object) {
            self.state().drop_object(id);
            return;
        }
        // An object without finalizers that is being deleted is gone already; the watch reports it.
        let is_ending = object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty();
        if !is_ending {
            let object = without_managers(Arc::unwrap_or_clone(object));
            let keys = self.state().update_object(id, object);
            self.add(keys);
        }
    }
}
