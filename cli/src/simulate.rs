//! `fleet simulate`: scenario files and traces on a virtual clock.
//!
//! Standard output is the log and the same for the same file and seed; what depends on this machine (jobs a second)
//! goes to standard error. A broken invariant makes the exit status 1, a bad file 2.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::Path,
    process::ExitCode,
    time::Instant,
};

use fleet_kubesim::{
    Scenario,
    cells::CellScenario,
    fast,
    scenario::{
        Mode,
        log::{Ending, JsonLines, Log, People, Record, Summary, SummaryOnly, What},
    },
    traces::{Order, ReplayOptions, Trace},
    whole,
};
use fleet_views::run::Recorder;

use crate::{
    args::{LogFormat, ModeName, OrderName, SimulateArgs},
    terminal::{self, Painter},
};

/// Exit status of a file that cannot be used.
const BAD_FILE: u8 = 2;

/// Why a simulation came to no end.
enum Trouble {
    /// The user's file: one line, status 2.
    File(String),
    Other(anyhow::Error),
}

impl From<fast::RunError> for Trouble {
    fn from(error: fast::RunError) -> Self {
        match error {
            fast::RunError::Scenario(error) => Self::File(error.to_string()),
            other => Self::Other(other.into()),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Other(error.into())
    }
}

pub fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let outcome = match &args.trace {
        Some(trace) => replay(trace, args),
        None => args.files.iter().try_fold(true, |kept, file| Ok(scenario(file, args)? && kept)),
    };
    match outcome {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(Trouble::File(line)) => {
            eprintln!("error: {line}");
            Ok(ExitCode::from(BAD_FILE))
        }
        // A reader that has seen enough, such as head.
        Err(Trouble::Other(error)) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(Trouble::Other(error)) => Err(error),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_io = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(of_io)
        || matches!(error.downcast_ref(), Some(fast::RunError::Log(error)) if error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether every invariant held.
fn scenario(path: &Path, args: &SimulateArgs) -> Result<bool, Trouble> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| unreadable(&name, &error))?;
    let of_cells = CellScenario::read(&name, &text).map_err(|error| Trouble::File(error.to_string()))?;
    if args.html.is_some() && (of_cells.is_some() || args.files.len() != 1) {
        let found = if of_cells.is_some() {
            format!("{name}, which has cells")
        } else {
            args.files.len().to_string()
        };
        return Err(Trouble::File(format!("--html: found {found}; allowed: one scenario of jobs")));
    }
    if let Some(scenario) = of_cells {
        return cells(&scenario, args);
    }
    let mut scenario = Scenario::read(&name, &text).map_err(|error| Trouble::File(error.to_string()))?;
    let (remarks, more) = scenario.remarks();
    for remark in remarks {
        eprintln!("warning: {remark}");
    }
    if more > 0 {
        eprintln!("warning: {name}: {more} more of these");
    }
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.mode = match args.mode {
        None => scenario.mode,
        Some(ModeName::Fast) => Mode::Fast,
        Some(ModeName::Whole) => Mode::Whole,
    };
    let out = BufWriter::new(io::stdout());
    let mut log: Box<dyn Log + Send> = match args.output {
        Some(LogFormat::Jsonl) => Box::new(JsonLines { out }),
        None if terminal::has_colours() => Box::new(People::new(Painter::new(out), &title(&scenario))?),
        None => Box::new(People::new(out, &title(&scenario))?),
    };
    let summary = match &args.html {
        None => simulate(&scenario, log.as_mut())?,
        Some(file) => {
            let mut both = Drawn::new(log, &title(&scenario))?;
            let summary = simulate(&scenario, &mut both)?;
            both.write(file)?;
            summary
        }
    };
    Ok(summary.violations.is_empty())
}

/// Passes records on, and keeps what a page of the run is drawn from.
struct Drawn {
    log: Box<dyn Log + Send>,
    story: People<Vec<u8>>,
    recorder: Recorder,
    title: String,
}

impl Drawn {
    fn new(log: Box<dyn Log + Send>, title: &str) -> io::Result<Self> {
        let story = People::new(Vec::new(), "")?;
        Ok(Self { log, story, recorder: Recorder::default(), title: title.to_owned() })
    }

    fn write(self, file: &Path) -> Result<(), Trouble> {
        let story = String::from_utf8_lossy(&self.story.into_inner()).into_owned();
        let page = fleet_portal::report::page(&self.title, &self.recorder.charts(), &story);
        let written = fs::write(file, page);
        written.map_err(|error| {
            let name = file.display();
            Trouble::File(format!("--html {name}: found {error}; allowed: a file that can be written"))
        })
    }
}

impl Log for Drawn {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let (at_ms, job, recorder) = (record.at_ms, record.job.as_ref(), &mut self.recorder);
        match &record.what {
            What::Submitted { gpus, .. } => recorder.submitted(at_ms, job, *gpus),
            What::Queued { queue, .. } | What::Requeued { queue, .. } | What::Admitted { queue } => {
                recorder.queued(at_ms, job, queue);
            }
            What::Started { cluster, .. } => recorder.started(at_ms, job, cluster),
            What::Preempted { .. } => recorder.ended(at_ms, job, "Preempted"),
            What::Evicted { reason, .. } => recorder.ended(at_ms, job, reason),
            What::Fenced { .. } => recorder.ended(at_ms, job, "Fenced"),
            What::Finished { result: Ending::Succeeded, .. } => recorder.ended(at_ms, job, "Succeeded"),
            What::Finished { result: Ending::Failed, .. } => recorder.ended(at_ms, job, "Failed"),
            What::Deleted {} => recorder.ended(at_ms, job, "Deleted"),
            What::Rejected { .. }
            | What::Pending { .. }
            | What::Reserved { .. }
            | What::ReservationRefused { .. }
            | What::Bound { .. } => {}
        }
        self.story.record(record)?;
        self.log.record(record)
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self.story.end(summary)?;
        self.log.end(summary)
    }
}

/// Cells alone; whether the audit found nothing.
fn cells(scenario: &CellScenario, args: &SimulateArgs) -> Result<bool, Trouble> {
    let mut out = BufWriter::new(io::stdout());
    let lines = matches!(args.output, Some(LogFormat::Jsonl));
    let summary = scenario.run(&mut |record| match lines {
        true => writeln!(out, "{}", record.json()?),
        false => writeln!(out, "{}", record.line()),
    })?;
    match lines {
        true => writeln!(out, "{}", serde_json::json!({ "summary": summary }))?,
        false => writeln!(out, "\n{}", summary.lines())?,
    }
    out.flush()?;
    Ok(summary.violations.is_empty())
}

fn simulate(scenario: &Scenario, log: &mut (dyn Log + Send)) -> Result<Summary, Trouble> {
    match scenario.mode {
        Mode::Fast => Ok(fast::run(scenario, log)?),
        // It has a runtime of its own, which must not begin on a thread of this one.
        Mode::Whole => std::thread::scope(|scope| {
            let run = scope.spawn(|| whole::run(scenario, log));
            run.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the simulation broke off")))
        })
        .map_err(Trouble::Other),
    }
}

/// A file that cannot be read has the same five parts as one that is wrong inside.
fn unreadable(name: &str, error: &io::Error) -> Trouble {
    Trouble::File(format!("{name}:1: the file: found {error}; allowed: a file that can be read"))
}

fn title(scenario: &Scenario) -> String {
    let nodes: usize = scenario.clusters.iter().flat_map(|c| &c.node_pools).map(|pool| pool.count).sum();
    let names: Vec<&str> = scenario.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    let shown = match names.as_slice() {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        names => names.join(", "),
    };
    let nodes = if nodes == 1 { "1 node".to_string() } else { format!("{nodes} nodes") };
    format!("{}: {nodes} in {shown}", scenario.file)
}

fn replay(path: &Path, args: &SimulateArgs) -> Result<bool, Trouble> {
    let read = |path: &Path| {
        let name = path.display().to_string();
        fs::read(path).map_err(|error| unreadable(&name, &error)).map(|bytes| (name, bytes))
    };
    // Required beside --trace.
    let Some(fleet) = &args.fleet else { return Ok(true) };
    let (fleet_name, fleet) = read(fleet)?;
    let clusters = Scenario::read_clusters(&fleet_name, &String::from_utf8_lossy(&fleet))
        .map_err(|error| Trouble::File(error.to_string()))?;
    let order = match args.policy {
        None => Order::default(),
        Some(OrderName::Fifo) => Order::Fifo,
        Some(OrderName::Priority) => Order::Priority,
        Some(OrderName::Sjf) => Order::Sjf,
        Some(OrderName::Fair) => Order::Fair,
    };
    let options = ReplayOptions { order, pin_clusters: args.pin_clusters };
    let started = Instant::now();
    let (name, bytes) = read(path)?;
    let trace =
        Trace::read(&name, &bytes, &clusters, options).map_err(|error| Trouble::File(error.to_string()))?;
    for notice in &trace.notices {
        eprintln!("note: {notice}");
    }
    let out = BufWriter::new(io::stdout().lock());
    let mut log: Box<dyn Log> = match args.output {
        Some(LogFormat::Jsonl) => Box::new(JsonLines { out }),
        None => Box::new(SummaryOnly { out }),
    };
    let read_s = started.elapsed().as_secs_f64();
    let (summary, stats) = fast::run_trace(&clusters, &trace, log.as_mut())?;
    let took_s = started.elapsed().as_secs_f64();
    drop(log);
    io::stdout().flush()?;
    eprintln!(
        "{} jobs in {took_s:.2} s ({read_s:.2} s of them to read the trace): {:.0} jobs/s, {} plans",
        trace.len(),
        trace.len() as f64 / took_s.max(1e-9),
        stats.plans,
    );
    Ok(summary.violations.is_empty())
}
