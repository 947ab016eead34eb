//! Reading and writing objects of the member whose kind is known only at run time.

use std::sync::Arc;

use fleet_api::names::AGENT_MANAGER;
use fleet_informer::without_managers;
use fleet_mirror::Change;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    core::{GroupVersionKind, Request},
    discovery::{ApiResource, oneshot},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    keys::{KindId, ObjectId},
    marks::is_managed,
    state::Known,
    works::Works,
};
use fleet_agent_ground::{CallError, Pod, call, resource};

const IMPERSONATE_USER: http::HeaderName = http::HeaderName::from_static("impersonate-user");

impl Works {
    /// The resource of a kind, from what is known or from the member; its watch is started.
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

    /// The object as it is known; asked for where the watch has not shown everything yet.
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

    /// The object as the member has it now, whoever made it.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        id: &ObjectId,
    ) -> Result<Option<Arc<DynamicObject>>, CallError> {
        let resource = match self.resource_of(&id.kind).await {
            // The member does not know the kind.
            Err(error) if error.is_not_found() => return Ok(None),
            resource => resource?,
        };
        let object = call(self.api(&resource, &id.namespace).get_opt(&id.name)).await?.map(Arc::new);
        if let Some(object) = &object {
            self.keep(id, object.clone());
        }
        Ok(object)
    }

    /// Creates an object, and its namespace when that is missing.
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
        let create = || self.written(&id.namespace, path.create(&params, body.clone()));
        let created: DynamicObject = match create().await {
            Err(error) if error.is_not_found() && !id.namespace.is_empty() => {
                self.create_namespace(&id.namespace).await?;
                create().await?
            }
            answer => answer?,
        };
        let created = Arc::new(created);
        self.keep(id, created.clone());
        Ok(created)
    }

    /// Sends a write under the rights that the member's administrator chose for the namespace.
    async fn written<T: DeserializeOwned>(
        &self,
        namespace: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let mut request = request.map_err(|error| CallError::Api(kube::Error::BuildRequest(error)))?;
        if let Some(user) = self.settings.permits.user(namespace) {
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

    /// Merge patch; `None` when the object is gone.
    pub(crate) async fn patch(
        self: &Arc<Self>,
        id: &ObjectId,
        patch: &Value,
    ) -> Result<Option<Arc<DynamicObject>>, CallError> {
        let resource = self.resource_of(&id.kind).await?;
        let params = PatchParams { field_manager: Some(AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(&resource, &id.namespace);
        let path = Request::new(api.resource_url());
        let request = path.patch(&id.name, &params, &Patch::Merge(patch));
        match self.written::<DynamicObject>(&id.namespace, request).await {
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => {
                // What is known may be old; the next look asks the member.
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

    /// Deletes the object in the background, if it is still this one. A conflict may mean that it is not, and as well
    /// that the server could not settle a race: it is told, and the next look finds out.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        id: &ObjectId,
        object: &DynamicObject,
    ) -> Result<(), CallError> {
        let resource = self.resource_of(&id.kind).await?;
        let preconditions = Preconditions { uid: object.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::background().preconditions(preconditions);
        let path = Request::new(self.api(&resource, &id.namespace).resource_url());
        match self.written::<Value>(&id.namespace, path.delete(&id.name, &params)).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                if error.is_conflict() {
                    self.fetch(id).await?;
                }
                Err(error)
            }
            Ok(answer) => {
                // The answer is the object where it stays for its finalizers, else a Status.
                if answer["kind"] != "Status"
                    && let Ok(object) = serde_json::from_value(answer)
                {
                    self.keep(id, Arc::new(object));
                }
                Ok(())
            }
        }
    }

    pub(crate) async fn delete_pod(&self, pod: &Pod) -> Result<(), CallError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced_with(
            self.handles.member.client.clone(),
            namespace,
            &resource("", "v1", "Pod", "pods"),
        );
        let preconditions = Preconditions { uid: Some(pod.uid().to_owned()), resource_version: None };
        let params = DeleteParams::background().preconditions(preconditions);
        match call(api.delete(pod.name(), &params)).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Takes in an answer of the member, if the object is one of those that are watched.
    fn keep(&self, id: &ObjectId, object: Arc<DynamicObject>) {
        if !is_managed(&object) {
            self.state().drop_object(id);
            return;
        }
        // One without finalizers that is being deleted is gone already; the watch says so.
        let is_ending = object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty();
        if !is_ending {
            let object = without_managers(Arc::unwrap_or_clone(object));
            self.state().take_objects(&id.kind, Change::Answer(object));
        }
    }
}
