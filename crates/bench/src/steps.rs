//! What each step of a fault costs, from what a run's pagers have counted.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::table::table;

/// A step of a fault.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Step {
    /// What is done.
    pub step: &'static str,
    /// Its time, divided by all faults.
    pub nanoseconds_per_fault: f64,
}

/// The steps of the faults of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Steps {
    /// The run.
    pub name: String,
    /// Faults that were served.
    pub faults: u64,
    /// From the message to the end of the work that it makes, for each fault. The steps on this way follow.
    pub nanoseconds_per_fault: f64,
    /// Steps that threads wait for, in the order in which they are made.
    pub on_the_way: Vec<Step>,
    /// What eviction costs, whether a thread waits for it or not.
    pub evicting: Vec<Step>,
    /// Processor time of the pagers' threads for each fault, the program's puppets not included.
    pub processor_nanoseconds_per_fault: f64,
}

impl Steps {
    /// The steps of a run, from its statistics; `None` when it had no fault.
    pub fn of(name: String, statistics: &Value) -> Option<Self> {
        let number = |key: &str| statistics[key].as_f64().unwrap_or(0.0);
        let faults = statistics["faults"].as_u64().filter(|&faults| faults > 0)?;
        let each = |nanoseconds: f64| nanoseconds / faults as f64;
        let step = |step, nanoseconds: f64| Step { step, nanoseconds_per_fault: each(nanoseconds) };
        let whole = number("reading_ns") + number("stall_ns");
        let mut on_the_way = vec![
            step("wait for its turn, and read the message", number("reading_ns")),
            step("decide what comes with it", number("deciding_ns") + number("following_ns")),
            step("make room", number("stall_room_ns")),
            step("load: copy, unpack, check", number("unpack_ns")),
            step("wait for memory nodes and disk", number("stall_node_ns") + number("stall_disk_ns")),
            step("install", number("installing_ns")),
            step("wake", number("waking_ns")),
        ];
        let told: f64 = on_the_way.iter().map(|step| step.nanoseconds_per_fault).sum();
        // Some of the steps are known from samples, so that their sum may be more than the whole.
        let rest = (each(whole) - told).max(0.0);
        on_the_way.push(Step { step: "everything else", nanoseconds_per_fault: rest });
        Some(Self {
            name,
            faults,
            nanoseconds_per_fault: each(whole),
            on_the_way,
            evicting: vec![
                step("move out of sight, and mark", number("moving_ns")),
                step("compare, pack, store", number("storing_ns")),
            ],
            processor_nanoseconds_per_fault: each(number("pager_cpu_ns")),
        })
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micro = |nanoseconds: f64| format!("{:.2}", nanoseconds / 1e3);
        let share =
            |nanoseconds: f64| format!("{:.0}%", 100.0 * nanoseconds / self.nanoseconds_per_fault.max(1.0));
        writeln!(f, "{}: {} faults", self.name, self.faults)?;
        let mut rows = table(&["step", "µs a fault", "share"], 1);
        for Step { step, nanoseconds_per_fault } in &self.on_the_way {
            rows.add_row([(*step).to_owned(), micro(*nanoseconds_per_fault), share(*nanoseconds_per_fault)]);
        }
        rows.add_row(["the whole".to_owned(), micro(self.nanoseconds_per_fault), String::new()]);
        for Step { step, nanoseconds_per_fault } in &self.evicting {
            rows.add_row([format!("evictions: {step}"), micro(*nanoseconds_per_fault), String::new()]);
        }
        let processor = self.processor_nanoseconds_per_fault;
        rows.add_row(["processor time of the pager".to_owned(), micro(processor), String::new()]);
        writeln!(f, "{rows}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_no_step_names_is_the_rest() {
        let statistics = json!({
            "faults": 10, "stall_ns": 900, "reading_ns": 100, "stall_room_ns": 300, "unpack_ns": 200,
            "installing_ns": 150, "waking_ns": 50, "moving_ns": 250, "storing_ns": 40, "pager_cpu_ns": 800,
        });

        let steps = Steps::of("a run".to_owned(), &statistics).expect("it had faults");

        let told: Vec<f64> = steps.on_the_way.iter().map(|step| step.nanoseconds_per_fault).collect();
        assert_eq!(told, [10.0, 0.0, 30.0, 20.0, 0.0, 15.0, 5.0, 20.0]);
        assert_eq!(steps.nanoseconds_per_fault, 100.0);
        assert_eq!(steps.evicting[0].nanoseconds_per_fault, 25.0);
    }

    #[test]
    fn samples_may_exceed_the_whole() {
        let steps = Steps::of(String::new(), &json!({ "faults": 1, "stall_ns": 5, "waking_ns": 7 }));
        assert_eq!(
            steps.expect("it had one").on_the_way.last().expect("the rest").nanoseconds_per_fault,
            0.0
        );
    }

    #[test]
    fn a_run_without_faults_has_no_steps() {
        assert_eq!(Steps::of(String::new(), &json!({ "faults": 0 })), None);
    }
}
