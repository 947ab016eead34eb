//! Writes of reservations: the copy in the member before the answer on the hub.

use fleet_api::patch::merge_diff_of;
use std::sync::Arc;

use fleet_api::{Reservation, ReservationStatus, names, reservation::ReservationPhase};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::entry::{CopyState, CopyWrite, HoldWrite, HoldWritten};
use crate::context::Context;
use fleet_agent_ground::{Backoff, CallError, call};

/// Annotation on a copy: the answer with its places. API servers drop the status of an object at creation, so
/// the places are stored here, in the same write as the copy.
pub(crate) const PLACES_ANNOTATION: &str = "fleet.dev/places";

/// The answer stored in a copy.
pub(crate) fn places_annotation(copy: &Reservation) -> Option<ReservationStatus> {
    let text = copy.metadata.annotations.as_ref()?.get(PLACES_ANNOTATION)?;
    serde_json::from_str(text)
        .ok()
        .filter(|s: &ReservationStatus| s.phase == Some(ReservationPhase::Reserved))
}

impl HoldWrite {
    /// Writes; after a failure it returns when the next attempt may start.
    pub async fn perform(self, context: Arc<Context>) -> HoldWritten {
        let mut written =
            HoldWritten { name: self.name.clone(), copy: None, answered: None, version: None, refused: None };
        if self.disputed {
            Backoff::new(&self.name).wait().await;
        }
        if let Err(error) = self.write(&context, &mut written).await {
            tracing::warn!(reservation = %self.name, %error, "cannot write the reservation; retrying");
            if error.is_about_the_object() {
                written.refused = Some(format!("the reservation cannot be stored: {error}"));
            }
            Backoff::new(&self.name).wait().await;
        }
        written
    }

    async fn write(&self, context: &Context, written: &mut HoldWritten) -> Result<(), CallError> {
        match &self.copy {
            CopyWrite::Keep => self.answer(context, written).await,
            CopyWrite::Delete => {
                self.delete_copy(context).await?;
                written.copy = Some(CopyState::None);
                self.answer(context, written).await
            }
            CopyWrite::Create(status) => {
                // Unless the write is known to have failed, the copy may exist, now or later.
                written.copy = Some(CopyState::Maybe);
                self.create_copy(context, status).await?;
                written.copy = Some(CopyState::Stands);
                self.answer(context, written).await
            }
        }
    }

    async fn create_copy(&self, context: &Context, status: &ReservationStatus) -> Result<(), CallError> {
        let mut copy = Reservation::new(&self.name, (*self.spec).clone());
        copy.metadata.labels =
            Some([(names::BINDING_UID_LABEL.to_owned(), self.spec.binding.uid.clone())].into());
        let places = serde_json::to_string(status).unwrap_or_default();
        copy.metadata.annotations = Some([(PLACES_ANNOTATION.to_owned(), places)].into());
        let api = copies(context);
        match call(api.create(&params(), &copy)).await {
            Err(error) if error.is_conflict() => {}
            other => return other.map(drop),
        }
        // A copy of an earlier answer with this name has outdated places.
        copy.metadata.resource_version = call(api.get(&self.name)).await?.metadata.resource_version;
        call(api.replace(&self.name, &params(), &copy)).await.map(drop)
    }

    async fn delete_copy(&self, context: &Context) -> Result<(), CallError> {
        match call(copies(context).delete(&self.name, &DeleteParams::default())).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn answer(&self, context: &Context, written: &mut HoldWritten) -> Result<(), CallError> {
        let Some((uid, status)) = &self.answer else { return Ok(()) };
        let api: Api<Reservation> = Api::namespaced(context.hub.client.clone(), &context.cluster_namespace());
        if let Some(diff) = merge_diff_of(&self.old_answer.clone().unwrap_or_default(), status) {
            // The uid keeps the answer from a later reservation of the same name.
            let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "status": diff}));
            match call(api.patch_status(&self.name, &PatchParams::default(), &patch)).await {
                // Replaced, or changed by another writer at the same time.
                Err(error) if error.is_conflict() => {
                    let stands = call(api.get_opt(&self.name)).await?;
                    if stands.is_some_and(|stands| stands.metadata.uid.as_ref() == Some(uid)) {
                        return Err(error);
                    }
                }
                // Gone or replaced: the feed reports what to answer then.
                Err(error) if !error.is_not_found() => return Err(error),
                Ok(stands) => written.version = stands.metadata.resource_version,
                Err(_) => {}
            }
        }
        written.answered = Some((uid.clone(), status.clone()));
        Ok(())
    }
}

fn copies(context: &Context) -> Api<Reservation> {
    Api::namespaced(context.member.client.clone(), names::MEMBER_NAMESPACE)
}

fn params() -> PostParams {
    PostParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PostParams::default() }
}
