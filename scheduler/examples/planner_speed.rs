//! Prints how fast the planner is: `cargo run --release -p fleet-scheduler --example planner_speed`.

#[allow(dead_code)]
#[path = "../../bench/src/planner_rows.rs"]
mod planner_rows;

fn main() -> anyhow::Result<()> {
    for row in planner_rows::rows()? {
        println!("{:75} {:>12.1} {:8} aim {}", row.what, row.found, row.unit, row.aim);
    }
    Ok(())
}
