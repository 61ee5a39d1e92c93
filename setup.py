"""What pyproject.toml cannot say: the bundled world and the documents lie beside the package in a checkout, and inside it in a wheel."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["rlhf_studio*"]), "rlhf_studio.assets", "rlhf_studio.docs"],
    package_dir={"rlhf_studio": "rlhf_studio", "rlhf_studio.assets": "assets", "rlhf_studio.docs": "docs"},
)
