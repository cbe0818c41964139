"""Models as TVM's users have them: in Relax."""


def relax_of(net, *inputs):
    """A torch.nn.Module by TVM's own importer."""
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    program = torch.export.export(net.eval(), inputs)
    return from_exported_program(
        program, unwrap_unit_return_tuple=program.call_spec.out_spec.is_leaf()
    )
