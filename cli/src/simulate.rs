//! `fleet simulate`: scenario files and traces on a virtual clock.
//!
//! Standard output is the log, which is the same for the same file and seed; machine-dependent numbers (jobs
//! per second) go to standard error. A broken invariant gives exit status 1, an invalid file 2.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use fleet_fault_simulation as whole;
use fleet_simulator::{
    Scenario,
    cells::{self, CellScenario, read_config},
    fast,
    scenario::{
        Mode,
        log::{Ending, JsonLines, Log, People, Record, Summary, SummaryOnly, What, WholeLog},
    },
    sharing,
    traces::{Order, ReplayOptions, Trace},
};
use fleet_views::{
    log::{Line, Parsed},
    run::Recorder,
};

use crate::args::{LogFormat, ModeName, OrderName, SimulateArgs};
use fleet_console::terminal::{self, Painter};

/// Exit status for an invalid file.
const BAD_FILE: u8 = 2;

/// Why a simulation did not complete.
enum Trouble {
    /// An invalid file: one line, status 2.
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
        // A reader that closes the pipe, such as head.
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
    let (flag, wanted) = ("--html", args.html.is_some());
    let (flag, wanted) = if wanted { (flag, wanted) } else { ("--log", args.log.is_some()) };
    if wanted && args.files.len() != 1 {
        return Err(Trouble::File(format!("{flag}: found {}; allowed: one scenario", args.files.len())));
    }
    if let Some(scenario) = of_cells {
        return of_cells_alone(&name, &scenario, args);
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
    if let Some(out) = log_file(args)? {
        log = Box::new(Both { shown: log, kept: WholeLog::new(out, &scenario) });
    }
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

/// Passes records on, and collects the data for an HTML page.
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
        draw(file, &self.title, self.recorder, &story)
    }
}

fn draw(file: &Path, title: &str, recorder: Recorder, story: &str) -> Result<(), Trouble> {
    let page = fleet_portal::report::page(title, &recorder.charts(), story);
    fs::write(file, page).map_err(|error| unwritable("--html", file, &error))
}

/// The file of `--log`.
fn log_file(args: &SimulateArgs) -> Result<Option<BufWriter<fs::File>>, Trouble> {
    let create = |file: &PathBuf| {
        fs::File::create(file).map(BufWriter::new).map_err(|error| unwritable("--log", file, &error))
    };
    args.log.as_ref().map(create).transpose()
}

fn unwritable(flag: &str, file: &Path, error: &io::Error) -> Trouble {
    Trouble::File(format!("{flag} {}: found {error}; allowed: a file that can be written", file.display()))
}

/// Passes records on, and writes them to a file.
struct Both<W> {
    shown: Box<dyn Log + Send>,
    kept: WholeLog<W>,
}

impl<W: Write> Log for Both<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.kept.record(record)?;
        self.shown.record(record)
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self.kept.end(summary)?;
        self.shown.end(summary)
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

/// A simulation of cells alone; returns whether the audit found nothing.
fn of_cells_alone(name: &str, scenario: &CellScenario, args: &SimulateArgs) -> Result<bool, Trouble> {
    let mut out = BufWriter::new(io::stdout());
    let lines = matches!(args.output, Some(LogFormat::Jsonl));
    let mut story = args.html.is_some().then(String::new);
    let shown = |record: &cells::Record| {
        if let Some(story) = &mut story {
            story.push_str(&record.line());
            story.push('\n');
        }
        match lines {
            true => writeln!(out, "{}", record.json()?),
            false => writeln!(out, "{}", record.line()),
        }
    };
    let kept = log_file(args)?.map(|out| cells::RunLog::new(out, scenario)).transpose()?;
    let mut log = Vec::new();
    let drawn = args.html.as_ref().map(|_| cells::RunLog::new(&mut log, scenario)).transpose()?;
    let mut all = cells::Both(cells::Both(shown, kept), drawn);
    let summary = scenario.run(&mut all)?;
    let cells::Both(cells::Both(_, kept), _) = all;
    if let Some(mut kept) = kept {
        kept.end(&summary)?;
    }
    if let (Some(file), Some(story)) = (&args.html, story) {
        let mut recorder = Recorder::default();
        for (index, text) in String::from_utf8_lossy(&log).lines().enumerate() {
            match Line::parse(index + 1, text) {
                Ok(Parsed::Line(line)) => recorder.take(&line),
                Ok(Parsed::Summary { .. }) => {}
                Err(error) => return Err(Trouble::Other(error.into())),
            }
        }
        draw(file, name, recorder, &format!("{story}\n{}", summary.lines()))?;
    }
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
        // It has its own runtime, which must not start on a thread of this one.
        Mode::Whole => std::thread::scope(|scope| {
            let run = scope.spawn(|| whole::run(scenario, log));
            run.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the simulation broke off")))
        })
        .map_err(Trouble::Other),
    }
}

/// An unreadable file is reported in the same five parts as an invalid one.
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

fn read_bytes(path: &Path) -> Result<(String, Vec<u8>), Trouble> {
    let name = path.display().to_string();
    fs::read(path).map_err(|error| unreadable(&name, &error)).map(|bytes| (name, bytes))
}

/// A trace with three ways to share the same nodes; whether no job waited longer under cells than alone.
fn compare(trace: &Path, config: &Path, args: &SimulateArgs) -> Result<bool, Trouble> {
    let wrong = |error: fleet_simulator::scenario::ScenarioError| Trouble::File(error.to_string());
    let (config_name, config) = read_bytes(config)?;
    let config = read_config(&config_name, &String::from_utf8_lossy(&config)).map_err(wrong)?;
    let (name, bytes) = read_bytes(trace)?;
    let started = Instant::now();
    let found = sharing::compare(&name, &bytes, &config, order(args)).map_err(wrong)?;
    for notice in &found.notices {
        eprintln!("note: {notice}");
    }
    match args.output {
        Some(LogFormat::Jsonl) => {
            for tenant in &found.tenants {
                println!("{}", serde_json::json!({ "virtualCluster": tenant }));
            }
            println!("{}", serde_json::json!({ "summary": found.total, "violations": found.violations }));
        }
        None => print!("{}", found.table()),
    }
    for violation in &found.violations {
        eprintln!("violation: {violation}");
    }
    eprintln!("{} jobs three times in {:.2} s", found.total.jobs, started.elapsed().as_secs_f64());
    Ok(found.violations.is_empty() && found.later_under_cells() == 0)
}

fn order(args: &SimulateArgs) -> Order {
    match args.policy {
        None => Order::default(),
        Some(OrderName::Fifo) => Order::Fifo,
        Some(OrderName::Priority) => Order::Priority,
        Some(OrderName::Sjf) => Order::Sjf,
        Some(OrderName::Fair) => Order::Fair,
    }
}

fn replay(path: &Path, args: &SimulateArgs) -> Result<bool, Trouble> {
    if let Some(config) = &args.cells {
        return compare(path, config, args);
    }
    // Required beside --trace.
    let Some(fleet) = &args.fleet else { return Ok(true) };
    let (fleet_name, fleet) = read_bytes(fleet)?;
    let clusters = Scenario::read_clusters(&fleet_name, &String::from_utf8_lossy(&fleet))
        .map_err(|error| Trouble::File(error.to_string()))?;
    let options = ReplayOptions { order: order(args), pin_clusters: args.pin_clusters };
    let started = Instant::now();
    let (name, bytes) = read_bytes(path)?;
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
