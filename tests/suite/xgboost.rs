//! XGBoost: training gives the same trees.

use farmem_tests::{Launcher, Program, scaled};

crate::at_both_shares!(training, super::training);

fn training(launcher: &Launcher) -> String {
    let program = Program::new(crate::python())
        .arg(crate::program_source("train_trees.py"))
        .arg(scaled(150_000).to_string())
        .env("OMP_NUM_THREADS", "2")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    launcher.run(program).success().text().to_owned()
}
