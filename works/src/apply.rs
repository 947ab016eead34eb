//! Brings the member in line with one Work, and tells the hub.

use fleet_api::patch::merge_diff_of;
use std::{sync::Arc, time::Duration};

use fleet_api::{
    Work,
    names::{BINDING_UID_LABEL, RESULT_FINALIZER, RESULT_RECORDED_ANNOTATION},
    policy::{ConflictResolution, Fencing},
};
use fleet_policies::workload::outcome;
use futures::{FutureExt, StreamExt, stream};
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    after_end,
    cleanup::Removal,
    desired::{self, Verdict},
    inject,
    keys::ObjectId,
    marks::{epoch_of, kind_of},
    report::{self, Applied, Reason},
    state::Known,
    templates,
    works::Works,
};
use fleet_agent_ground::{CallError, Next, call};

/// Dependencies of one Work that are applied at a time.
const DEPENDENCIES_IN_FLIGHT: usize = 8;

/// How long the first report waits for what the object says of itself: a job says something when its pods run.
const FIRST_REPORT: Duration = Duration::from_millis(25);
const FIRST_REPORT_OF_JOB: Duration = Duration::from_millis(300);
/// How long news of a run are gathered while many Works are looked at.
const NEWS: Duration = Duration::from_millis(250);
/// With fewer Works to look at than so many, news are told at once.
const QUIET: usize = 8;

/// What became of one manifest.
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
        // Pods of an earlier run could stand unseen.
        if !self.state().pods_synced {
            return Ok(Next::Wait);
        }
        if let Some(refused) = self.refuse(&work).await? {
            let objects = self.objects(&work);
            self.write_status(&work, Some(&refused), &objects).await?;
            return Ok(Next::Wait);
        }
        // The Work's arrival is what the hold was for: from now on it has an owner and no deadline, however
        // long it takes until everything stands.
        if !report::has_ended(&work) {
            self.handles.places.consume(&work.spec.binding.uid, work.spec.epoch).await;
        }
        // A fenced job is started and resumed in good standing only; a change of the standing leads here again.
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
        let objects = self.objects(&work);
        // Most objects say something of themselves at once: that goes into the first report.
        let first = matches!(applied, Some(Applied::Yes)) && report::is_unreported(&work);
        let silent =
            || objects.first().and_then(Option::as_ref).is_none_or(|object| object.data["status"].is_null());
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
        // The hub has an end that the job itself does not know of: somebody else told it. The run is over all the same.
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

    /// How long what is new of a run that goes on is gathered; an end, and whatever went wrong, is told at once.
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

    /// Why nothing is done for this Work: its epoch is over, or a former leader of the hub wrote it.
    async fn refuse(self: &Arc<Self>, work: &Work) -> Result<Option<Applied>, CallError> {
        let spec = &work.spec;
        let newest = self.state().newest_epoch(&spec.binding.uid);
        let is_job = spec.workload.manifests.first().is_some_and(|manifest| kind_of(manifest).is_job());
        match newest {
            Some(newest) if newest.number > spec.epoch => return Ok(Some(stale(spec.epoch, newest.number))),
            // The end of a run that was let go of is final: a late copy of its Work does not begin it again.
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

    /// Dependencies, then the governed object.
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
            return Ok((Some(why), Next::Retry));
        }
        match self.place(work, 0).await? {
            Placed::Stands => Ok((Some(Applied::Yes), Next::Wait)),
            Placed::Ended => Ok((None, Next::Wait)),
            Placed::Not(why) => {
                // Objects that Fleet did not make are not watched, so their end is not news here.
                let is_watched =
                    matches!(why, Applied::No { reason: Reason::WaitingForCleanup | Reason::StaleEpoch, .. });
                Ok((Some(why), if is_watched { Next::Wait } else { Next::Retry }))
            }
        }
    }

    /// Brings one manifest about.
    async fn place(self: &Arc<Self>, work: &Arc<Work>, ordinal: usize) -> Result<Placed, CallError> {
        if let Err(message) = self.settings.permits.manifest(&work.spec, ordinal) {
            return Ok(Placed::Not(Applied::No { reason: Reason::NotPermitted, message }));
        }
        let means = inject::Means {
            image: self.settings.watchdog_image.as_deref(),
            fence_grace: self.settings.fence_grace,
            stops_within: self.settings.watchdog_stops_within,
        };
        let wanted = match desired::desired(&work.spec, ordinal, means) {
            Ok(wanted) => wanted,
            Err(message) => {
                return Ok(Placed::Not(Applied::No { reason: Reason::AppliedFailed, message }));
            }
        };
        let id = ObjectId::of_manifest(&wanted);
        let is_job = ordinal == 0 && kind_of(&wanted).is_job();
        // While the watch has not shown everything, creating tells as much as asking.
        let known = self.state().object(&id);
        let mut live = match known {
            Known::Object(object) => Some(object),
            _ => None,
        };
        if live.is_none() {
            if is_job && self.remove_stray_pods(&id).await? == Removal::Waits {
                let message = format!("pods of an earlier {id} have to go first");
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
                Err(error) => return Err(error),
            }
        }
        let Some(live) = live else {
            let message = format!("{id} came and went; trying again");
            return Ok(Placed::Not(Applied::No { reason: Reason::AppliedFailed, message }));
        };
        let wanted = if ordinal == 0 { templates::as_made(wanted, &live) } else { wanted };
        self.settle(work, ordinal, &wanted, &id, live).await
    }

    /// Deals with an object that stands already.
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
            Verdict::Taken => {
                let asks = work.spec.conflict_resolution == Some(ConflictResolution::Overwrite);
                let consent = if asks {
                    "; Overwrite needs the consent of the member's agent (--allow-overwrite)"
                } else {
                    ""
                };
                not(
                    Reason::NameTaken,
                    format!("{id} exists in the member and was not made by Fleet{consent}"),
                )
            }
            Verdict::Wait(why) => not(Reason::WaitingForCleanup, format!("{id}: {why}")),
            Verdict::Stale(newest) => Ok(Placed::Not(stale(work.spec.epoch, newest))),
            Verdict::Supersede => {
                self.remove_run(id, &live).await?;
                not(Reason::WaitingForCleanup, format!("{id}: an older run is still going"))
            }
            Verdict::Same | Verdict::Patch(_) if is_job && live.metadata.deletion_timestamp.is_some() => {
                // Deleted in the member by somebody else. An end is kept for the hub; a run without one is
                // cleared away and begins anew, under the same epoch, when nothing of it is left.
                if outcome(kind_of(wanted), &live.data["status"]).is_some() {
                    return Ok(Placed::Ended);
                }
                self.remove_run(id, &live).await?;
                not(Reason::WaitingForCleanup, format!("{id} was deleted in the member"))
            }
            Verdict::Same => Ok(Placed::Stands),
            Verdict::Patch(patch) => {
                let text = patch.to_string();
                if self.state().is_settled(id, &text) {
                    return Ok(Placed::Stands);
                }
                let Some(patched) = self.patch(id, &patch).await? else {
                    return not(Reason::AppliedFailed, format!("{id} went while it was changed"));
                };
                // A server that rewrites what it is given would be asked for ever.
                if desired::judge(&work.spec, ordinal, wanted, &patched, overwrite) == Verdict::Patch(patch) {
                    self.state().settle(id, text);
                }
                Ok(Placed::Stands)
            }
        }
    }

    /// The objects of a Work that stand for its binding, by position.
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

    /// Whether the Work's run is over, as the hub was told or as the job itself says.
    fn has_ended(&self, work: &Work, objects: &[Option<Arc<DynamicObject>>]) -> bool {
        let Some(manifest) = work.spec.workload.manifests.first() else { return false };
        let job = objects.first().and_then(Option::as_ref);
        report::has_ended(work)
            || job.is_some_and(|job| outcome(kind_of(manifest), &job.data["status"]).is_some())
    }

    /// Writes the status if it says something new.
    async fn write_status(
        &self,
        work: &Work,
        applied: Option<&Applied>,
        objects: &[Option<Arc<DynamicObject>>],
    ) -> Result<(), CallError> {
        let mut status = report::status(work, applied, objects, self.now());
        let first = work.spec.workload.manifests.first().filter(|_| self.has_ended(work, objects));
        let live = first.map(|job| after_end::live_pods(&self.state(), &ObjectId::of_manifest(job)).len());
        status.live_pods = live.filter(|live| *live > 0).and_then(|live| i64::try_from(live).ok());
        let Some(change) = merge_diff_of(&work.status.clone().unwrap_or_default(), &status) else {
            return Ok(());
        };
        let patch = Patch::Merge(json!({"status": change}));
        match call(self.hub.patch_status(&work.name_any(), &PatchParams::default(), &patch)).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(work) => {
                self.state().update_work(work);
                Ok(())
            }
        }
    }

    /// The hub has the end: the member may forget the job.
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

/// Whether the hub has recorded the end of the Work's run.
fn is_recorded(work: &Work) -> bool {
    work.annotations().contains_key(RESULT_RECORDED_ANNOTATION)
}

/// An error without the API server's whole answer.
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
