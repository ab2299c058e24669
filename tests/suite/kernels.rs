//! The kernels that `farmem bench nodes` measures: each works on its data with a quarter of it local, and
//! checks its own result.

use farmem_tests::{Launcher, Program, farmem_binary, managed_runner, scaled};

const KERNELS: [&str; 7] =
    ["stencil", "fourier", "breadth-first", "dictionary", "sort", "hull", "independent"];

#[test]
fn every_kernel_comes_to_the_right_result_with_a_quarter_of_its_data_local() {
    if !managed_runner() {
        return;
    }
    let data = scaled(16);
    for kernel in KERNELS {
        let launcher = Launcher::managed((data / 4) << 20);
        let program = Program::new(farmem_binary()).args(["kernel", kernel, "--data", &format!("{data}M")]);
        let finished = launcher.run(program).success();
        assert!(finished.text().contains("seconds"), "{kernel}: {finished}");
    }
}
