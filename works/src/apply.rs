//! Reconciles the member with one Work, and reports to the hub.

use fleet_api::patch::merge_diff_of;
use std::{sync::Arc, time::Duration};

use fleet_api::{
    Work,
    names::{BINDING_UID_LABEL, RESULT_FINALIZER, RESULT_RECORDED_ANNOTATION},
    policy::{ConflictResolution, Fencing},
};
use fleet_policies::{nesting, workload::outcome};
use futures::{FutureExt, StreamExt, stream};
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    after_end::live_pods,
    cleanup::Removal,
    desired::{self, ObjectComparison},
    inject,
    keys::ObjectId,
    marks::{epoch_of, is_of_run, kind_of},
    report::{self, Applied, Reason},
    state::Known,
    templates,
    works::Works,
};
use fleet_agent_ground::{CallError, Next, WorkOutcome, call};

/// Most dependencies of one Work applied concurrently.
const DEPENDENCIES_IN_FLIGHT: usize = 8;

/// How long the first report waits for the object's status; a job has one when its pods run.
const FIRST_REPORT: Duration = Duration::from_millis(25);
const FIRST_REPORT_OF_JOB: Duration = Duration::from_millis(300);
/// How long changes of a run are collected while many Works are reconciled.
const NEWS: Duration = Duration::from_millis(250);
/// With fewer Works to reconcile than this, changes are reported at once.
const QUIET: usize = 8;

/// Pause before something that the member's administrator does not permit is tried again.
const NOT_PERMITTED_PAUSE: Duration = Duration::from_secs(60);

/// Result for one manifest.
enum Placed {
    Stands,
    Not(Applied),
    /// A job that has ended and is gone.
    Ended,
}

impl Works {
    pub(crate) async fn look_at_work(self: &Arc<Self>, name: &str) -> Result<Next, CallError> {
        let work = self.state().work(self.hub.namespace().unwrap_or_default(), name);
        let Some(work) = work else { return Ok(Next::Wait) };
        if work.metadata.deletion_timestamp.is_some() {
            return self.clean_up(&work).await;
        }
        // Pods of an earlier run might exist unseen.
        if !self.hasten_pods(&work).await? {
            return Ok(Next::Wait);
        }
        if let Some(refused) = self.refuse(&work).await? {
            self.handles.counts.reconciled(WorkOutcome::Refused);
            let objects = self.objects(&work);
            self.write_status(&work, Some(&refused), &objects).await?;
            return Ok(Next::Wait);
        }
        // The Work has arrived, so the hold has an owner and no longer expires, however long applying takes.
        if !report::has_ended(&work) {
            self.handles.places.consume(&work.spec.binding.uid, work.spec.epoch).await;
        }
        // A fenced job is started and resumed only in good standing; a change of the standing triggers this
        // again.
        let may_run = work.spec.fencing() == Fencing::None || self.handles.lease.may_run();
        if work.spec.suspend_dispatching == Some(true) || !may_run {
            let objects = self.objects(&work);
            self.write_status(&work, None, &objects).await?;
            return Ok(Next::Wait);
        }
        let (applied, next) = match self.apply(&work).await {
            Ok((applied, next)) => (applied, next),
            Err(error) => {
                let message = sentence(&error);
                (Some(Applied::No { reason: Reason::AppliedFailed, message }), Next::Retry)
            }
        };
        self.handles.counts.reconciled(match (&applied, next) {
            (_, Next::Retry) => WorkOutcome::Failed,
            (Some(Applied::No { .. }), _) => WorkOutcome::Refused,
            _ => WorkOutcome::Applied,
        });
        let objects = self.objects(&work);
        // Most objects get a status at once, which then is in the first report.
        let first = matches!(applied, Some(Applied::Yes)) && report::is_unreported(&work);
        // An API server keeps an empty status for kinds that always have one.
        let silent = || {
            let governed = objects.first().and_then(Option::as_ref);
            governed.is_none_or(|object| !report::is_said(&object.data["status"]))
        };
        if first && silent() {
            let is_job = work.spec.workload.manifests.first().is_some_and(|one| kind_of(one).is_job());
            let wait = if is_job { FIRST_REPORT_OF_JOB } else { FIRST_REPORT };
            if let Some(left) = self.state().hold_report(name, wait) {
                return Ok(Next::After(left));
            }
        } else if matches!(next, Next::Wait)
            && let Some(left) = self.news_wait(&work, applied.as_ref(), &objects)
        {
            return Ok(Next::After(left));
        }
        self.state().end_hold(name);
        self.write_status(&work, applied.as_ref(), &objects).await?;
        // The hub knows an end that the job does not report: another source reported it. The run is over
        // anyway.
        let job = objects.first().and_then(Option::as_ref);
        if let (true, Some(job), Some(manifest)) =
            (is_recorded(&work), job, work.spec.workload.manifests.first())
            && outcome(kind_of(manifest), &job.data["status"]).is_none()
        {
            self.remove_run(&ObjectId::of_manifest(manifest), job).await?;
            return Ok(Next::Wait);
        }
        let next = match self.has_ended(&work, &objects) {
            true => self.end_pods(&work, objects.first().and_then(Option::as_ref)).await?.unwrap_or(next),
            false => next,
        };
        if is_recorded(&work) {
            self.let_go(&work, objects.first().and_then(Option::as_ref)).await?;
        }
        Ok(next)
    }

    /// How long changes of a running job are collected; an end or a failure is reported at once.
    fn news_wait(
        &self,
        work: &Work,
        applied: Option<&Applied>,
        objects: &[Option<Arc<DynamicObject>>],
    ) -> Option<Duration> {
        let goes_on = matches!(applied, Some(Applied::Yes)) && !self.has_ended(work, objects);
        let is_busy = self.queue.load() > QUIET;
        if !goes_on || !is_busy || report::is_unreported(work) {
            return None;
        }
        let status = report::status(work, applied, objects, self.now());
        let is_new = merge_diff_of(&work.status.clone().unwrap_or_default(), &status).is_some();
        is_new.then(|| self.state().hold_report(&work.name_any(), NEWS)).flatten()
    }

    /// Why this Work is refused: its epoch is over, or a former leader of the hub wrote it.
    async fn refuse(self: &Arc<Self>, work: &Work) -> Result<Option<Applied>, CallError> {
        let spec = &work.spec;
        let newest = self.state().newest_epoch(&spec.binding.uid);
        let is_job = spec.workload.manifests.first().is_some_and(|manifest| kind_of(manifest).is_job());
        match newest {
            Some(newest) if newest.number > spec.epoch => return Ok(Some(stale(spec.epoch, newest.number))),
            // The end of a removed run is final: a late copy of its Work does not start it again.
            Some(newest) if newest.number == spec.epoch && newest.is_closed && is_job => {
                let message = format!("the run of epoch {} is over in this member", spec.epoch);
                return Ok(Some(Applied::No { reason: Reason::StaleEpoch, message }));
            }
            _ => {}
        }
        let Some(term) = spec.term else { return Ok(None) };
        let Err(newest) = self.handles.terms.see(term).await? else { return Ok(None) };
        let stands = self.objects(work).first().is_some_and(Option::is_some);
        if stands || report::has_ended(work) {
            return Ok(None);
        }
        let message = format!("term {term} is older than {newest}, the newest seen of a leader of the hub");
        Ok(Some(Applied::No { reason: Reason::StaleTerm, message }))
    }

    /// Applies the dependencies, then the selected object.
    async fn apply(self: &Arc<Self>, work: &Arc<Work>) -> Result<(Option<Applied>, Next), CallError> {
        let spec = &work.spec;
        if report::has_ended(work) || is_recorded(work) {
            // Nothing is applied again for a run that is over.
            return Ok((None, Next::Wait));
        }
        let mut dependencies = Vec::new();
        for ordinal in 1..spec.workload.manifests.len() {
            dependencies.push(self.place(work, ordinal).boxed());
        }
        let mut placed = stream::iter(dependencies).buffer_unordered(DEPENDENCIES_IN_FLIGHT);
        let mut refused = None;
        while let Some(answer) = placed.next().await {
            if let Placed::Not(why) = answer? {
                refused = refused.or(Some(why));
            }
        }
        drop(placed);
        if let Some(why) = refused {
            let next = again(&why);
            return Ok((Some(why), next));
        }
        match self.place(work, 0).await? {
            Placed::Stands => Ok((Some(Applied::Yes), Next::Wait)),
            Placed::Ended => Ok((None, Next::Wait)),
            Placed::Not(why) => {
                // Objects that Fleet did not create are not watched, so their deletion triggers nothing here.
                let is_watched =
                    matches!(why, Applied::No { reason: Reason::WaitingForCleanup | Reason::StaleEpoch, .. });
                let next = if is_watched { Next::Wait } else { again(&why) };
                Ok((Some(why), next))
            }
        }
    }

    /// Applies one manifest.
    async fn place(self: &Arc<Self>, work: &Arc<Work>, ordinal: usize) -> Result<Placed, CallError> {
        if let Err(message) = self.settings.permits.manifest(&work.spec, ordinal) {
            return Ok(Placed::Not(Applied::No { reason: Reason::NotPermitted, message }));
        }
        if let Some(Err(found)) = work.spec.workload.manifests.get(ordinal).map(nesting::check) {
            let message = format!("spec.workload.manifests[{ordinal}]: {found}");
            return Ok(Placed::Not(Applied::No { reason: Reason::NotPermitted, message }));
        }
        let means = inject::Means {
            image: self.settings.watchdog_image.as_deref(),
            fence_grace: self.settings.fence_grace,
            stops_within: self.settings.watchdog_stops_within,
        };
        let wanted = match desired::desired(&work.spec, ordinal, means) {
            Ok(wanted) => templates::within(wanted, self.settings.max_pod_grace),
            Err(message) => {
                return Ok(Placed::Not(Applied::No { reason: Reason::AppliedFailed, message }));
            }
        };
        let id = ObjectId::of_manifest(&wanted);
        let is_job = ordinal == 0 && kind_of(&wanted).is_job();
        // Before the watch is complete, a create tells as much as a get.
        let known = self.state().object(&id);
        let mut live = match known {
            Known::Object(object) => Some(object),
            _ => None,
        };
        if live.is_none() {
            if is_job && self.remove_stray_pods(&id).await? == Removal::Waits {
                let message = format!("waits until the pods of an earlier {id} are gone");
                return Ok(Placed::Not(Applied::No { reason: Reason::WaitingForCleanup, message }));
            }
            let served = templates::Served {
                scheduler_names: &self.settings.scheduler_names,
                controllers: &self.settings.controllers,
            };
            let made = if is_job { &templates::made(&work.spec, wanted.clone(), served) } else { &wanted };
            match self.create(&id, made).await {
                Ok(_) => return Ok(Placed::Stands),
                Err(error) if error.is_conflict() => live = self.fetch(&id).await?,
                Err(error) => return self.not_written(&id, "create", error).await,
            }
        }
        let Some(live) = live else {
            let message = format!("{id} appeared and was deleted meanwhile; retrying");
            return Ok(Placed::Not(Applied::No { reason: Reason::AppliedFailed, message }));
        };
        if is_of_run(&live, &work.spec.binding.uid, work.spec.epoch) {
            self.state().late.seen(&id);
        }
        let wanted = if ordinal == 0 { templates::as_made(wanted, &live) } else { wanted };
        self.settle(work, ordinal, &wanted, &id, live).await
    }

    /// Handles an existing object.
    async fn settle(
        self: &Arc<Self>,
        work: &Arc<Work>,
        ordinal: usize,
        wanted: &Value,
        id: &ObjectId,
        live: Arc<DynamicObject>,
    ) -> Result<Placed, CallError> {
        let not = |reason, message| Ok(Placed::Not(Applied::No { reason, message }));
        let is_job = ordinal == 0 && kind_of(wanted).is_job();
        let overwrite = self.settings.permits.overwrite;
        match desired::judge(&work.spec, ordinal, wanted, &live, overwrite) {
            ObjectComparison::Taken => {
                let asks = work.spec.conflict_resolution == Some(ConflictResolution::Overwrite);
                let consent = if asks {
                    "; Overwrite must be allowed by the member's agent (--allow-overwrite)"
                } else {
                    ""
                };
                not(
                    Reason::NameTaken,
                    format!("{id} exists in the member and was not made by Fleet{consent}"),
                )
            }
            ObjectComparison::Wait(why) => not(Reason::WaitingForCleanup, format!("{id}: {why}")),
            ObjectComparison::Stale(newest) => Ok(Placed::Not(stale(work.spec.epoch, newest))),
            ObjectComparison::Supersede => {
                self.remove_run(id, &live).await?;
                not(Reason::WaitingForCleanup, format!("{id}: an older run is still going"))
            }
            ObjectComparison::Same | ObjectComparison::Patch(_)
                if is_job && live.metadata.deletion_timestamp.is_some() =>
            {
                // Deleted in the member by another user. A result is kept for the hub; a run without one is
                // removed and starts again under the same epoch when nothing of it is left.
                if outcome(kind_of(wanted), &live.data["status"]).is_some() {
                    return Ok(Placed::Ended);
                }
                self.remove_run(id, &live).await?;
                not(Reason::WaitingForCleanup, format!("{id} was deleted in the member"))
            }
            ObjectComparison::Same => Ok(Placed::Stands),
            // Its controller would make new pods beside those that still end: more than are counted and reserved. Those of this
            // agent count pods that end.
            ObjectComparison::Patch(patch)
                if is_job
                    && desired::resumes(wanted, &live, &patch)
                    && !self.is_run_here(id)
                    && (live.data["status"]["terminating"].as_i64() > Some(0)
                        || !live_pods(&self.state(), id).is_empty()) =>
            {
                let message = format!("{id} is resumed when the pods from before it was suspended are gone");
                not(Reason::WaitingForCleanup, message)
            }
            ObjectComparison::Patch(patch) => {
                let text = patch.to_string();
                if self.state().is_settled(id, &text) {
                    return Ok(Placed::Stands);
                }
                let patched = match self.change(id, &patch).await {
                    Err(error) => return self.not_written(id, "patch", error).await,
                    Ok(patched) => patched,
                };
                let Some(patched) = patched else {
                    return not(Reason::AppliedFailed, format!("{id} was deleted while it was changed"));
                };
                // If the server rewrites the values that it gets, this would be repeated forever.
                if desired::judge(&work.spec, ordinal, wanted, &patched, overwrite)
                    == ObjectComparison::Patch(patch)
                {
                    self.state().settle(id, text);
                }
                Ok(Placed::Stands)
            }
        }
    }

    /// A write has failed: if the member's roles forbid it, a retry is useless.
    async fn not_written(
        self: &Arc<Self>,
        id: &ObjectId,
        verb: &str,
        error: CallError,
    ) -> Result<Placed, CallError> {
        if !error.is_forbidden() {
            return Err(error);
        }
        match self.forbidden(id, verb).await? {
            Some(why) => {
                let message = format!("{id}: {why}");
                Ok(Placed::Not(Applied::No { reason: Reason::NotPermitted, message }))
            }
            None => Err(error),
        }
    }

    /// The objects of a Work that exist for its binding, by position.
    fn objects(&self, work: &Work) -> Vec<Option<Arc<DynamicObject>>> {
        let mut objects = Vec::new();
        for (ordinal, manifest) in work.spec.workload.manifests.iter().enumerate() {
            let object = match self.state().object(&ObjectId::of_manifest(manifest)) {
                Known::Object(object) => Some(object),
                _ => None,
            };
            let is_ours = |object: &Arc<DynamicObject>| {
                ordinal > 0
                    || (object.labels().get(BINDING_UID_LABEL) == Some(&work.spec.binding.uid)
                        && epoch_of(object) == Some(work.spec.epoch))
            };
            objects.push(object.filter(is_ours));
        }
        objects
    }

    /// Whether the Work's run is over, according to the hub or to the job itself.
    fn has_ended(&self, work: &Work, objects: &[Option<Arc<DynamicObject>>]) -> bool {
        let Some(manifest) = work.spec.workload.manifests.first() else { return false };
        let job = objects.first().and_then(Option::as_ref);
        report::has_ended(work)
            || job.is_some_and(|job| outcome(kind_of(manifest), &job.data["status"]).is_some())
    }

    /// Writes the status if it has changed.
    async fn write_status(
        self: &Arc<Self>,
        work: &Work,
        applied: Option<&Applied>,
        objects: &[Option<Arc<DynamicObject>>],
    ) -> Result<(), CallError> {
        let mut status = report::status(work, applied, objects, self.now());
        let ended = work.spec.workload.manifests.first().filter(|_| self.has_ended(work, objects));
        let live = match ended {
            Some(manifest) => {
                let job = objects.first().and_then(Option::as_deref);
                self.live_pods_of_ended(work, manifest, job).await
            }
            None => 0,
        };
        status.live_pods = i64::try_from(live).ok().filter(|live| *live > 0);
        let Some(change) = merge_diff_of(&work.status.clone().unwrap_or_default(), &status) else {
            return Ok(());
        };
        let patch = Patch::Merge(json!({"status": change}));
        match call(self.hub.patch_status(&work.name_any(), &PatchParams::default(), &patch)).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(work) => {
                let keys = self.state().update_work(work);
                self.add(keys);
                Ok(())
            }
        }
    }

    /// The hub has recorded the result: the member may delete the job.
    async fn let_go(
        self: &Arc<Self>,
        work: &Work,
        job: Option<&Arc<DynamicObject>>,
    ) -> Result<(), CallError> {
        let Some(manifest) = work.spec.workload.manifests.first() else { return Ok(()) };
        let Some(patch) = job.and_then(|job| desired::without_finalizer(&**job, RESULT_FINALIZER)) else {
            return Ok(());
        };
        self.patch(&ObjectId::of_manifest(manifest), &patch).await.map(drop)
    }
}

/// When something that was refused is tried again. The hub takes a run back that is not permitted; other
/// objects are retried until the member's administrator permits them.
fn again(why: &Applied) -> Next {
    match why {
        Applied::No { reason: Reason::NotPermitted, .. } => Next::After(NOT_PERMITTED_PAUSE),
        _ => Next::Retry,
    }
}

/// Whether the hub has recorded the end of the Work's run.
fn is_recorded(work: &Work) -> bool {
    work.annotations().contains_key(RESULT_RECORDED_ANNOTATION)
}

/// An error message without the API server's whole answer.
fn sentence(error: &CallError) -> String {
    match error {
        CallError::Api(kube::Error::Api(status)) => status.message.clone(),
        error => error.to_string(),
    }
}

fn stale(epoch: i64, newest: i64) -> Applied {
    let message = format!("epoch {epoch} is older than {newest}, the newest seen of this binding");
    Applied::No { reason: Reason::StaleEpoch, message }
}
